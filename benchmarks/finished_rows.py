"""What a benchmark has finished, one file a row, so that processes side by side do not undo each other's work."""

import json
from pathlib import Path
from typing import Any

from cruciform.data.transforms.whitening import cache_folder
from cruciform.files import read_text, write_json
from cruciform.machine import processor


def kept_folder(benchmark: str) -> Path:
    """Return where the runs of a benchmark are kept: not in the checkout, so that another one resumes them."""
    return cache_folder() / "benchmarks" / benchmark


def read_rows(folder: Path) -> dict[str, Any]:
    """Return all rows by their keys."""
    return {path.stem: json.loads(read_text(path)) for path in sorted(folder.glob("*.json"))}


def write_row(folder: Path, key: str, row: Any) -> None:
    """Keep a row, finished or as far as it is."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / f"{key}.json", row)


class FinishedRows:
    """The rows of one part of a result; those of the committed file count as finished, so that work goes on elsewhere.

    Each row names its processor, since those of one result may differ.

    Args:
        folder: Where rows are kept as they are finished.
        result: The committed result.
        part: Where in its details the rows are; None: its details are the rows.
    """

    def __init__(self, folder: Path, result: Path, part: str | None = None) -> None:
        self._folder, self._result, self._part = folder, result, part

    def read(self) -> dict[str, Any]:
        """Return all rows by their keys."""
        recorded = json.loads(read_text(self._result))["details"] if self._result.is_file() else {}
        if self._part is not None:
            recorded = recorded.get(self._part, {})
        return {**recorded, **read_rows(self._folder)}

    def write(self, key: str, row: dict[str, Any]) -> None:
        """Keep a row, finished or as far as it is."""
        write_row(self._folder, key, {**row, "processor": processor.name()})
