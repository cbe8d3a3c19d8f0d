"""Progress where there is no terminal: one plain line every few seconds, so that a log shows that work goes on."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cruciform.cli.shared.terminal import echo

EVERY = 10.0  # seconds between two lines


def watched() -> bool:
    """Returns whether people look at a terminal, where bars can be drawn."""
    return sys.stderr.isatty()


@contextmanager
def heartbeat(before: str = "") -> Iterator[Callable[[str], None]]:
    """Prints a line to standard error every few seconds, until the block ends; gives what takes the next lines' text.

    A thread of its own prints: what is being done may take longer than that, and says nothing meanwhile.

    Args:
        before: What stands after the seconds that have passed, and before the text.
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
