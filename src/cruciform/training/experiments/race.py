"""A race: several recipes, some seeds each, in turns, so that whatever disturbs the machine disturbs all alike.

Every run is kept in a directory of its own and can be interrupted. What it came to is plain data, ``Finish``, which is
all that a table, a picture or a file of results needs.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from cruciform.errors import RunError
from cruciform.measure.macs import profile
from cruciform.measure.record import hardware
from cruciform.text.wording import plural
from cruciform.training.backends.backend import Job
from cruciform.training.evaluate_run import trained_network
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.recipe.table import read_table
from cruciform.training.run.journal import read_journal
from cruciform.training.run.observer import Observer
from cruciform.training.run.run import Run, differences
from cruciform.training.start import start

JUDGED = ("train_loss", "loss", "top1", "top1_mirrored", "auc")


@dataclass(frozen=True)
class Contestant:
    """Who takes part.

    Attributes:
        name: What it is called.
        recipe: What it computes; its seed is the race's.
    """

    name: str
    recipe: Recipe


@dataclass(frozen=True)
class Processes:
    """What each run of a race is computed by.

    Attributes:
        workers: How many there are.
        backend: How they come to be.
        device: What they compute on.
    """

    workers: int = 1
    backend: str = "local"
    device: str = "auto"


ONE_PROCESS = Processes()


@dataclass(frozen=True)
class Finish:
    """What a run came to.

    Attributes:
        name: Of the contestant.
        seed: Of the run.
        macs: Multiply-accumulates of one image.
        params: Of the network.
        samples: Training samples of an epoch.
        recipe: Of the run.
        curve: For every epoch its number, the seconds of training until its end, and how the network was judged.
        versions: Of this library and what it stands on.
        hardware: The machine on which it ended; nothing where nobody recorded it.
        command: What was typed; nothing where nobody recorded it.
    """

    name: str
    seed: int
    macs: int
    params: int
    samples: int
    recipe: Mapping[str, Any]
    curve: Sequence[Mapping[str, Any]]
    versions: Mapping[str, str]
    hardware: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""

    @property
    def seconds(self) -> float:
        """Time of training, without evaluations and checkpoints."""
        return float(self.curve[-1]["seconds"])

    @property
    def top1(self) -> float:
        """Accuracy at the end."""
        return float(self.curve[-1]["top1"])

    @property
    def top1_mirrored(self) -> float | None:
        """Accuracy at the end, averaged over each image and its mirror image, where the recipe judges so."""
        return self.curve[-1].get("top1_mirrored")

    @property
    def images_per_second(self) -> float:
        """Speed of training."""
        return float(self.curve[-1]["epoch"]) * self.samples / self.seconds

    def seconds_to(self, accuracy: float) -> float | None:
        """Returns the time until the first epoch that ended with this accuracy, with mirror images where judged so."""
        for point in self.curve:
            if point.get("top1_mirrored", point["top1"]) >= accuracy:
                return float(point["seconds"])
        return None

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data, for JSON."""
        return asdict(self)


def run_race(
    contestants: Sequence[Contestant],
    seeds: Sequence[int],
    folder: Path,
    *,
    finished: Sequence[Finish] = (),
    observe: Callable[[], Observer] = Observer,
    processes: Processes = ONE_PROCESS,
    command: str = "",
) -> Iterator[Finish]:
    """Yields each run's finish when it is there: all contestants with the first seed, then with the next.

    Args:
        contestants: Who takes part.
        seeds: Of the runs.
        folder: Where the runs are kept; those that were interrupted go on.
        finished: What is known already and is not run again.
        observe: Makes those who watch a run.
        processes: What each run is computed by.
        command: What was typed, for the record.
    """
    known = {(finish.name, finish.seed): finish for finish in finished}
    for turn, seed in enumerate(seeds):
        # Whoever starts second finds a warmer machine: that advantage goes round as well.
        first = turn % len(contestants)
        for contestant in (*contestants[first:], *contestants[:first]):
            recipe = contestant.recipe.model_copy(update={"seed": seed})
            if (contestant.name, seed) in known:
                _check_same(known[contestant.name, seed], recipe)
                continue
            run = Run(folder / f"{contestant.name}-{seed}")
            job = Job(recipe, run, resume=True, workers=processes.workers, device=processes.device, observe=observe)
            if not start(job, processes.backend):  # one of torchrun's processes, which does not speak for the others
                raise RunError("a race starts the processes of its runs by itself; call it without torchrun")
            yield replace(read_finish(run, contestant.name), hardware=hardware(), command=command)


def read_finish(run: Run, name: str) -> Finish:
    """Returns what a finished run came to, from its log."""
    lines = read_journal(run.log)
    epochs = [line for line in lines if line["event"] == "epoch"]
    recipe, start = run.recipe(), next(line for line in lines if line["event"] == "start")
    if len(epochs) < recipe.epochs:
        raise RunError(f"{run.directory} has {len(epochs)} of {plural(recipe.epochs, 'epoch')}; let it end first")
    seconds = 0.0
    curve: list[dict[str, Any]] = []
    for line in epochs:
        seconds += line["seconds_training"]
        if "top1" in line:  # not every epoch need be judged
            judged = {key: line[key] for key in JUDGED if key in line}
            curve.append({"epoch": line["epoch"], "seconds": round(seconds, 3)} | judged)
    trained = trained_network(run.directory)
    counted = profile(trained.model, trained.input_size)
    return Finish(
        name,
        recipe.seed,
        counted.macs,
        counted.params,
        start["samples"],
        recipe.to_dict(),
        curve,
        start["versions"],
    )


def by_contestant(finishes: Sequence[Finish]) -> dict[str, list[Finish]]:
    """Returns the runs of each contestant, in the order in which they first finished."""
    groups: dict[str, list[Finish]] = {}
    for finish in finishes:
        groups.setdefault(finish.name, []).append(finish)
    return groups


def curves(finishes: Sequence[Finish]) -> dict[str, list[list[tuple[float, float]]]]:
    """Returns what a picture shows: of each contestant a curve of (seconds, accuracy) for every seed."""
    return {
        f"{name} ({group[0].macs / 1e6:.0f} MMAC)": [
            [(point["seconds"], point.get("top1_mirrored", point["top1"])) for point in finish.curve]
            for finish in group
        ]
        for name, group in by_contestant(finishes).items()
    }


def summarize(finishes: Sequence[Finish]) -> dict[str, float]:
    """Returns means over the seeds of one contestant, and where there are several their standard deviation."""

    def mean(values: Sequence[float]) -> float:
        return statistics.fmean(values)

    def averaged(what: str, values: Sequence[float], digits: int = 3) -> dict[str, float]:
        spread = {f"{what}_deviation": round(statistics.stdev(values), digits)} if len(values) > 1 else {}
        return {what: round(mean(values), digits)} | spread

    plain = [100 * finish.top1 for finish in finishes]
    figures = {
        "seeds": len(finishes),
        "mmacs": round(finishes[0].macs / 1e6, 2),
        "params": finishes[0].params,
        **averaged("plain_accuracy", plain),
        "seconds": round(mean([finish.seconds for finish in finishes]), 1),
        "images_per_second": round(mean([finish.images_per_second for finish in finishes]), 1),
    }
    mirrored = [100 * finish.top1_mirrored for finish in finishes if finish.top1_mirrored is not None]
    figures |= averaged("accuracy", mirrored if len(mirrored) == len(finishes) else plain)
    areas = [finish.curve[-1]["auc"] for finish in finishes if "auc" in finish.curve[-1]]
    if len(areas) == len(finishes):
        figures |= averaged("auc", areas, 4)
    return figures


def _check_same(old: Finish, recipe: Recipe) -> None:
    before = read_table(Recipe, dict(old.recipe), f"the recipe of {old.name}")  # what it did not know has its default
    if differences(before.to_dict(), recipe.to_dict()):
        raise RunError(
            f"{old.name} with seed {old.seed} is recorded with another recipe; record this race into another file, or "
            "delete that one to begin anew"
        )
