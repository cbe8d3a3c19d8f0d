"""A race: several recipes with several seeds each, interleaved, so that disturbances of the machine affect all alike.

Every run has its own directory and can be interrupted. Its result is plain data, ``Finish``, which is all that a table,
a plot or a result file needs.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from cruciform.errors import OptionError, RunError
from cruciform.measure.macs import profile
from cruciform.measure.record import hardware
from cruciform.text.wording import plural
from cruciform.training.backends.backend import ONE_PROCESS, Job
from cruciform.training.engine.trained_run import trained_network
from cruciform.training.recipe.cookbook import load_recipe
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.recipe.renamed_keys import upgrade_recipe
from cruciform.training.run.journal import RENAMED_FIELDS, read_journal
from cruciform.training.run.observer import Observer
from cruciform.training.run.run import Run, differences
from cruciform.training.runtime.processes import Processes
from cruciform.training.start import start
from cruciform.training.tables.table import read_table

METRICS = ("train_loss", "loss", "top1", "top1_flip_tta", "auc")


@dataclass(frozen=True)
class Contestant:
    """A recipe that takes part.

    Attributes:
        name: Its label, which directories of runs start with.
        recipe: What it computes; its seed is set by the race.
    """

    name: str
    recipe: Recipe


@dataclass(frozen=True)
class Finish:
    """The result of a run.

    Attributes:
        name: Of the contestant.
        seed: Of the run.
        macs: Multiply-accumulates of one image.
        params: Number of parameters of the network.
        samples: Training samples in an epoch.
        recipe: Of the run.
        curve: For every evaluated epoch its number, the training time until its end in seconds, and the metrics.
        versions: Of this library and its dependencies.
        hardware: The machine on which it ended; empty where it was not recorded.
        command: The command line; empty where it was not recorded.
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
        """Training time in seconds, without evaluations and checkpoints."""
        return float(self.curve[-1]["seconds"])

    @property
    def top1(self) -> float:
        """Final top-1 accuracy."""
        return float(self.curve[-1]["top1"])

    @property
    def top1_flip_tta(self) -> float | None:
        """Final top-1 accuracy with flip TTA; None where the recipe does not enable it."""
        return self.curve[-1].get("top1_flip_tta")

    @property
    def images_per_second(self) -> float:
        """Training throughput."""
        return float(self.curve[-1]["epoch"]) * self.samples / self.seconds

    def seconds_to(self, accuracy: float) -> float | None:
        """Return the training time to this accuracy, with flip TTA where enabled; None where it was not reached."""
        for point in self.curve:
            if point.get("top1_flip_tta", point["top1"]) >= accuracy:
                return float(point["seconds"])
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Finish":
        """Read plain data; older versions wrote other keys."""
        curve = [{RENAMED_FIELDS.get(key, key): value for key, value in point.items()} for point in data["curve"]]
        return cls(**{**data, "recipe": upgrade_recipe(data["recipe"]), "curve": curve})


@dataclass(frozen=True)
class RaceResult:
    """The runs of a race.

    Attributes:
        finishes: All runs, in the order in which they ended.
    """

    finishes: tuple[Finish, ...]

    def summary(self) -> dict[str, dict[str, float]]:
        """Return the means over seeds of each contestant."""
        return {name: summarize(group) for name, group in by_contestant(self.finishes).items()}

    def __str__(self) -> str:
        lines = []
        for name, found in self.summary().items():
            std = f" ± {found['accuracy_std']:.2f}" if "accuracy_std" in found else ""
            lines.append(
                f"{name}: accuracy {found['accuracy']:.2f}{std} % over {plural(int(found['seeds']), 'seed')}, "
                f"{found['mmacs']:.1f} MMACs, {found['seconds']:,.0f} s of training"
            )
        return "\n".join(lines)


def read_contestant(text: str, changes: Sequence[str] = ()) -> Contestant:
    """Read ``RECIPE,key=value,...``: a recipe, and overrides of its own.

    Args:
        text: A recipe name, TOML file or run, then overrides, separated by commas.
        changes: Overrides of all contestants.
    """
    name, *own = text.split(",")
    recipe = load_recipe(name, [*changes, *own])
    # The label is part of a directory name: the last part of each key, and its value without slashes.
    settings = [(key.rpartition(".")[2], value) for key, _, value in (change.partition("=") for change in own)]
    label = "-".join((Path(name).stem, *(f"{key}={value.replace('/', '_')}" for key, value in settings)))
    return Contestant(label, recipe)


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
    """Yield the result of each run when it ends: all contestants with the first seed, then with the next.

    Args:
        contestants: The recipes that take part.
        seeds: Of the runs.
        folder: Where the runs are stored; those that were interrupted are resumed.
        finished: Results that are known already and are not computed again.
        observe: Makes the observer of a run.
        processes: The processes of each run.
        command: The command line, for the record.
    """
    if len({one.name for one in contestants}) < len(contestants):
        raise OptionError(
            f"contestants must have different names, not {', '.join(one.name for one in contestants)}; add an override "
            "to one of them"
        )
    known = {(finish.name, finish.seed): finish for finish in finished}
    for round_, seed in enumerate(seeds):
        # The machine is warmer for whoever starts second, so the order rotates.
        first = round_ % len(contestants)
        for contestant in (*contestants[first:], *contestants[:first]):
            recipe = contestant.recipe.model_copy(update={"seed": seed})
            if (contestant.name, seed) in known:
                _check_same(known[contestant.name, seed], recipe)
                continue
            run = Run(folder / f"{contestant.name}-{seed}")
            job = Job(recipe, run, resume=True, processes=processes, observer=observe())
            if not start(job):  # a process that torchrun started, and that does not lead
                raise RunError("a race starts the processes of its runs itself; start it without torchrun")
            yield replace(read_finish(run, contestant.name), hardware=hardware(), command=command)


def read_finish(run: Run, name: str) -> Finish:
    """Return the result of a finished run, from its log."""
    lines = read_journal(run.log)
    epochs = [line for line in lines if line["event"] == "epoch"]
    recipe, start = run.recipe(), next(line for line in lines if line["event"] == "start")
    if len(epochs) < recipe.epochs:
        raise RunError(f"{run.directory} has {len(epochs)} of {plural(recipe.epochs, 'epoch')}; resume it first")
    seconds = 0.0
    curve: list[dict[str, Any]] = []
    for line in epochs:
        seconds += line["seconds_training"]
        if "top1" in line:  # not every epoch need be evaluated
            metrics = {key: line[key] for key in METRICS if key in line}
            curve.append({"epoch": line["epoch"], "seconds": round(seconds, 3)} | metrics)
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
    """Return the results of each contestant, in the order in which they first finished."""
    groups: dict[str, list[Finish]] = {}
    for finish in finishes:
        groups.setdefault(finish.name, []).append(finish)
    return groups


def curves(finishes: Sequence[Finish]) -> dict[str, list[list[tuple[float, float]]]]:
    """Return what a plot shows: for each contestant and seed, a curve of (seconds, accuracy)."""
    return {
        f"{name} ({group[0].macs / 1e6:.0f} MMAC)": [
            [(point["seconds"], point.get("top1_flip_tta", point["top1"])) for point in finish.curve]
            for finish in group
        ]
        for name, group in by_contestant(finishes).items()
    }


def summarize(finishes: Sequence[Finish]) -> dict[str, float]:
    """Return means over the seeds of one contestant, with their standard deviation where there are several."""

    def mean(values: Sequence[float]) -> float:
        return statistics.fmean(values)

    def averaged(what: str, values: Sequence[float], digits: int = 3) -> dict[str, float]:
        spread = {f"{what}_std": round(statistics.stdev(values), digits)} if len(values) > 1 else {}
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
    flip_tta = [100 * finish.top1_flip_tta for finish in finishes if finish.top1_flip_tta is not None]
    figures |= averaged("accuracy", flip_tta if len(flip_tta) == len(finishes) else plain)
    areas = [finish.curve[-1]["auc"] for finish in finishes if "auc" in finish.curve[-1]]
    if len(areas) == len(finishes):
        figures |= averaged("auc", areas, 4)
    return figures


def _check_same(old: Finish, recipe: Recipe) -> None:
    before = read_table(
        Recipe, dict(old.recipe), f"the recipe of {old.name}"
    )  # keys that it did not have get their defaults
    if differences(before.to_dict(), recipe.to_dict()):
        raise RunError(
            f"{old.name} with seed {old.seed} is recorded with another recipe; record this race in another file, or "
            "delete that one to start again"
        )
