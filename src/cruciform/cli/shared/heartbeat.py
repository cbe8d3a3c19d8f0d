"""Progress without a terminal: a plain line every few seconds, so that a log shows progress."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cruciform.cli.shared.terminal import echo

EVERY = 10.0  # seconds between two lines


def watched() -> bool:
    """Return whether standard error is a terminal, where bars can be drawn."""
    return sys.stderr.isatty()


@contextmanager
def heartbeat(before: str = "") -> Iterator[Callable[[str], None]]:
    """Print a line to standard error every few seconds until the block ends; yield a function that sets its text.

    A thread prints it, since the work in the block may take longer than that without a call.

    Args:
        before: Printed between the elapsed seconds and the text.
    """
    ended, start, text = threading.Event(), time.monotonic(), "starting"

    def say(now: str) -> None:
        nonlocal text
        text = now

    def beat() -> None:
        while not ended.wait(EVERY):
            echo(f"{time.monotonic() - start:.0f} s{before}: {text}", error=True)

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield say
    finally:
        ended.set()
        thread.join()
