"""Capture what native code of libraries prints, past Python's own streams."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

STDOUT, STDERR = 1, 2


@contextmanager
def without_chatter(stream: int = STDERR, remarks: list[str] | None = None) -> Iterator[None]:
    """Capture what is written to a stream of the process, and add its lines to a list if one is given."""
    terminal = os.dup(stream)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), stream)
        try:
            yield
        finally:
            os.dup2(terminal, stream)
            os.close(terminal)
            if remarks is not None:
                file.seek(0)
                remarks += file.read().decode(errors="replace").splitlines()
