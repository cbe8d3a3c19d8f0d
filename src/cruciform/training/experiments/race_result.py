"""The result file of a race: every finished run, and means over seeds in its summary."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from cruciform.errors import RunError
from cruciform.files import alone_in, read_text
from cruciform.measure.record import record_result
from cruciform.training.experiments.race import Finish, by_contestant, summarize


def read_finishes(path: Path) -> list[Finish]:
    """Return the runs in a result file; none where it does not exist yet."""
    if not path.is_file():
        return []
    try:
        return [Finish.from_dict(run) for run in json.loads(read_text(path))["details"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{path} is not a result file of a race: {error}") from error


def add_finish(finish: Finish, path: Path, record: Callable[[list[Finish]], None]) -> None:
    """Add a run to a result file, which other processes may have changed.

    Args:
        finish: The run.
        path: The result file.
        record: Writes all runs into it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with alone_in(path.parent):
        others = [old for old in read_finishes(path) if (old.name, old.seed) != (finish.name, finish.seed)]
        record([*others, finish])


def record_race(finishes: Sequence[Finish], path: Path, *, command: str) -> None:
    """Write all runs into a result file."""
    groups = by_contestant(finishes)
    summary = {f"{name}_{key}": value for name, group in groups.items() for key, value in summarize(group).items()}
    seeds = min(map(len, groups.values()))
    record_result(path, summary=summary, details=[finish.to_dict() for finish in finishes], command=command, n=seeds)
