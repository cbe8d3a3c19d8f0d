"""Signals that stop a run: recorded, and handled after the current step, when a checkpoint can be saved."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

WATCHED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def heard_signals() -> list[signal.Signals]:
    """Return the signals to handle; those that the process ignores are left alone, as under nohup."""
    return [number for number in WATCHED if signal.getsignal(number) != signal.SIG_IGN]


class Signals:
    """Within its block, signals are recorded in ``received`` (0: none).

    A second SIGINT ends the process at once; the files on disk are complete anyway.
    """

    def __init__(self) -> None:
        self.received = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Signals":
        if threading.current_thread() is threading.main_thread():  # Python allows handlers only there
            self._before = {number: signal.signal(number, self._receive) for number in heard_signals()}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.received == signal.SIGINT == number:
            raise KeyboardInterrupt
        self.received = number
