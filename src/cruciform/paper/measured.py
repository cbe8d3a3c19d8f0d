"""Our own training results from recorded files, to plot beside the published ones."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cruciform.errors import RunError
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


@dataclass(frozen=True)
class TablePoint:
    """A network of the paper's table that we trained, or the dense one made narrower.

    Attributes:
        network: Its name.
        mmacs: Million multiply-accumulates of an image.
        accuracy: Final top-1 accuracy in percent, mean over seeds.
        std: Over the seeds; None for a single run.
        seeds: How many.
        milliseconds: Deployed, at batch size 1; None: not measured.
    """

    network: str
    mmacs: float
    accuracy: float
    std: float | None
    seeds: int
    milliseconds: float | None


def table_points(result: Mapping[str, Any], path: Path) -> list[TablePoint]:
    """Return the networks in the summary of a result of ``benchmarks/tiny_vgg.py``, without those of equal time."""
    try:
        summary = result["summary"]
        names = [key.removesuffix("_mmacs") for key in summary if key.endswith("_mmacs")]
        return [
            TablePoint(
                name,
                summary[f"{name}_mmacs"],
                summary[f"{name}_accuracy"],
                summary.get(f"{name}_accuracy_std"),
                summary[f"{name}_seeds"],
                summary.get(f"{name}_ms_b1"),
            )
            for name in names
            if not name.endswith("_same_time")
        ]
    except (KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{path} is not a result file of the table of VGG networks: {error!r} is missing") from error


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
