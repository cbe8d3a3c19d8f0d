"""The log of a run: a line of JSON for everything that happens. It is the truth; all else is drawn from it.

Lines are only ever added. A run that was killed goes on from its last checkpoint, so some steps happen twice: the line
``{"event": "start", "step": 391}`` says that what was logged after step 391 before it does not count.
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


class Journal:
    """Writes a log.

    Args:
        path: The file; lines are added to what it holds.
        check: Called before each line; raises where nothing may be written any more.
    """

    def __init__(self, path: Path, check: Callable[[], None] = lambda: None) -> None:
        self._check = check
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab+")
        if self._file.tell():
            self._file.seek(-1, os.SEEK_END)
            if self._file.read(1) != b"\n":
                self._file.write(b"\n")  # the last line was torn by a kill; readers pass over it
        self._start = time.monotonic()

    def write(self, event: str, **values: Any) -> None:
        """Adds a line."""
        self._check()
        now = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
        line = {"event": event, "time": now, "seconds": round(time.monotonic() - self._start, 3), **values}
        self._file.write(printable_json(line).encode() + b"\n")
        self._file.flush()

    def close(self) -> None:
        """Ends writing."""
        self._file.close()


def read_journal(path: Path) -> list[dict[str, Any]]:
    """Returns the lines that count, in their order: what a later start took back is left out, and torn lines."""
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
    # An epoch that was judged, but not saved as judged before a kill, is judged again.
    judged = {line.get("step", 0): index for index, line in enumerate(lines) if line["event"] == "epoch"}
    return [
        line for index, line in enumerate(lines) if line["event"] != "epoch" or judged[line.get("step", 0)] == index
    ]


def parsed(text: bytes) -> dict[str, Any] | None:
    """Returns a line of a log; None where a kill tore it, or where it is none of ours."""
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    ours = isinstance(line, dict) and isinstance(line.get("event"), str) and type(line.get("step", 0)) is int
    return line if ours else None
