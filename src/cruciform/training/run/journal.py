"""The log of a run: a line of JSON for every event. Plots, reports and TensorBoard files are derived from it.

Lines are only ever appended. A run that was killed resumes from its last checkpoint, so some steps happen twice: the
line ``{"event": "start", "step": 391}`` cancels earlier lines of steps after 391.
"""

import datetime as dt
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cruciform.files import read_bytes
from cruciform.text.escapes import printable_json

RENAMED_FIELDS = {"rate": "lr", "norm": "grad_norm", "top1_mirrored": "top1_flip_tta", "what": "message"}
"""Keys of log lines that older versions wrote."""
ONCE_A_STEP = frozenset({"epoch", "low_rank"})


class Journal:
    """Writes a log.

    Args:
        path: The file; lines are appended to it.
        check: Called before each line; raises where the process may no longer write.
    """

    def __init__(self, path: Path, check: Callable[[], None] = lambda: None) -> None:
        self._check = check
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab+")
        if self._file.tell():
            self._file.seek(-1, os.SEEK_END)
            if self._file.read(1) != b"\n":
                self._file.write(b"\n")  # a kill cut off the last line; readers skip it
        self._start = time.monotonic()

    def write(self, event: str, **values: Any) -> None:
        """Append a line."""
        self._check()
        now = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
        line = {"event": event, "time": now, "seconds": round(time.monotonic() - self._start, 3), **values}
        self._file.write(printable_json(line).encode() + b"\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_journal(path: Path) -> list[dict[str, Any]]:
    """Return the valid lines in order, without those that a later start cancelled."""
    lines: list[dict[str, Any]] = []
    if not path.is_file():
        return lines
    for text in read_bytes(path).splitlines():
        line = parsed(text)
        if line is None:
            continue
        if line.get("event") == "start":
            reached = line.get("step", 0)
            lines = [old for old in lines if old.get("event") == "start" or old.get("step", 0) <= reached]
        lines.append(line)
    # What was done, but not saved before a kill, is done again: an evaluation, a switch to low rank.
    last = {(line["event"], line.get("step", 0)): index for index, line in enumerate(lines)}
    return [
        line
        for index, line in enumerate(lines)
        if line["event"] not in ONCE_A_STEP or last[line["event"], line.get("step", 0)] == index
    ]


def parsed(text: bytes) -> dict[str, Any] | None:
    """Return a line of a log with today's keys; None where it is incomplete or not ours."""
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    ours = isinstance(line, dict) and isinstance(line.get("event"), str) and type(line.get("step", 0)) is int
    return {RENAMED_FIELDS.get(key, key): value for key, value in line.items()} if ours else None
