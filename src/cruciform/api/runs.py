"""``cruciform.list_runs``: the runs in a folder, and their states."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cruciform.training.run.run import RunStatus


def list_runs(folder: str | Path = "runs") -> "list[RunStatus]":
    """Return the state of every run in a folder and its subfolders.

    Args:
        folder: The folder; one that does not exist has no runs.
    """
    from cruciform.training.run.run import find_runs, read_status

    return [read_status(run) for run in find_runs(Path(folder))]
