"""Injectors: what a child does to itself before it trains. The library has no hooks; the system's calls are bent.

All that a save of a checkpoint asks of the system is numbered, in its order: make a directory, write, sync, rename,
remove. A failpoint is one of these numbers and what happens there.
"""

import errno
import io
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cruciform.training.run import checkpoint as checkpoint_module
from cruciform.training.run.checkpoint import Checkpoints

Blow = Callable[[Callable[[], Any], Path | None], Any]
"""Is given the call that would be made, and the file it is about, and does something else."""


class Failpoint:
    """Strikes at one operation.

    Args:
        number: Of the operation within a save; one that is never reached never strikes.
        blow: What happens there.
        mark: A file that is made when it strikes, so that others know.
        save: In which save of the process, counted from 0; None: whatever is done, from the start.
    """

    def __init__(self, number: int, blow: Blow, mark: Path, save: int | None = 1) -> None:
        self._number, self._blow, self._mark, self._wanted = number, blow, mark, save
        self._count, self._saves = 0, -1
        self._active = save is None

    def arm(self) -> None:
        """Bends the system's calls in this process."""
        real_open, real_save, save = io.open, checkpoint_module.save_file, Checkpoints.save

        def opened(file: Any, mode: str = "r", *more: Any, **options: Any) -> Any:
            if "w" not in mode or isinstance(file, int):
                return real_open(file, mode, *more, **options)
            return self._meet(lambda: real_open(file, mode, *more, **options), Path(file))

        def saved(tensors: Any, path: str) -> None:
            self._meet(lambda: real_save(tensors, path), Path(path))

        def counted(this: Checkpoints, *given: Any, **options: Any) -> Path:
            self._saves += 1
            self._active = self._active or self._saves == self._wanted
            try:
                return save(this, *given, **options)
            finally:
                self._active = self._wanted is None

        io.open = opened  # type: ignore[assignment]
        checkpoint_module.save_file = saved
        Checkpoints.save = counted  # type: ignore[method-assign]
        for module, name in (
            (os, "mkdir"),
            (os, "fsync"),
            (os, "replace"),
            (os, "chmod"),
            (os, "unlink"),
            (os, "rmdir"),
        ):
            setattr(module, name, self._bent(getattr(module, name)))

    def _bent(self, call: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given, **options: self._meet(lambda: call(*given, **options), None)

    def _meet(self, call: Callable[[], Any], path: Path | None) -> Any:
        if not self._active:
            return call()
        here, self._count = self._count, self._count + 1
        if here != self._number:
            return call()
        os.close(os.open(self._mark, os.O_CREAT | os.O_WRONLY))
        return self._blow(call, path)


def kill_before(call: Callable[[], Any], path: Path | None) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_after(call: Callable[[], Any], path: Path | None) -> Any:
    try:
        call()  # may fail rightly, as for a directory that is there
    finally:
        os.kill(os.getpid(), signal.SIGKILL)


def error(number: int) -> Blow:
    """The call fails."""

    def blow(call: Callable[[], Any], path: Path | None) -> Any:
        raise OSError(number, os.strerror(number))

    return blow


def short_write(call: Callable[[], Any], path: Path | None) -> Any:
    """Half of what was to be written is, then the device is gone. Calls that write nothing fail once they are made."""
    made = call()
    if path is None or not path.is_file():
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    if made is None:  # written already
        os.truncate(path, path.stat().st_size // 2)
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    made.write("{" if isinstance(made, io.TextIOBase) else b"{")
    made.flush()
    made.close()
    raise OSError(errno.EIO, os.strerror(errno.EIO))
