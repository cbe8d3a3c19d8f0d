"""Our own training results from recorded files, to plot beside the published ones."""

import statistics
from dataclasses import dataclass
from pathlib import Path

from cruciform.training.experiments.race import Finish, by_contestant
from cruciform.training.experiments.race_result import read_finishes


@dataclass(frozen=True)
class OwnPoint:
    """A network that we trained.

    Attributes:
        network: Its name in the zoo.
        macs: Multiply-accumulates of an image of the size that it was evaluated on.
        error: Final top-1 error, mean over seeds.
        seeds: How many.
        epochs: Of each run.
        optimizer: That it was trained by.
    """

    network: str
    macs: int
    error: float
    seeds: int
    epochs: int
    optimizer: str


def own_points(path: Path) -> list[OwnPoint]:
    """Return the networks of a race's result file; nothing if it does not exist."""
    return [_point(group) for group in by_contestant(read_finishes(path)).values()]


def _point(group: list[Finish]) -> OwnPoint:
    first = group[0]
    error = 1 - statistics.fmean(finish.top1 for finish in group)
    recipe = first.recipe
    return OwnPoint(
        str(recipe["model"]["name"]),
        first.macs,
        error,
        len(group),
        int(recipe["epochs"]),
        str(recipe["optimizer"]["kind"]),
    )
