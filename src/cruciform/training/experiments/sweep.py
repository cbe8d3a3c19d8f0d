"""A sweep: runs of a recipe with settings proposed by Optuna, in this process or on Ray.

Only this process uses the study, whose journal is a file. A trial is a run in its own directory: a worker that dies is
restarted by Ray and resumes from its last checkpoint; when this process dies, the next start resumes the trials that
were running.
"""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from cruciform.errors import (
    ConversionError,
    CruciformError,
    MissingExtraError,
    NonFiniteError,
    OptionError,
    PlanError,
    RecipeError,
    RunError,
    ShapeError,
    UnknownNameError,
    first_line,
)
from cruciform.text.wording import plural
from cruciform.training.backends.ray import cluster, import_ray, wants_gpus
from cruciform.training.engine.loop import Interrupted, train
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.run.run import Run, differences
from cruciform.training.runtime.runtime import SingleProcess, pick_device
from cruciform.training.tables.table import read_table

RETRIES = 5
MOST_TRIED = 256  # combinations of ends
JOURNAL = "study.log"
ASKED = "asked"
"""The attribute of a study that records the recipe and the search space."""

UNFIT = (ConversionError, NonFiniteError, OptionError, PlanError, RecipeError, ShapeError, UnknownNameError)
"""Errors that the settings of a trial can cause. Others, such as missing data or a full disk, end the sweep."""


@dataclass(frozen=True)
class Search:
    """The search space of one recipe key.

    Attributes:
        key: As ``optimizer.lr``.
        values: The choices; empty where it is a range.
        low: Start of the range.
        high: End of the range.
        log: Whether the range is sampled on a log scale.
        whole: Whether only integers are tried.
    """

    key: str
    values: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False

    @classmethod
    def read(cls, text: str) -> "Search":
        """Read ``optimizer.lr=0.01..0.5:log``, ``epochs=5..20`` or ``model.scheme=lr,lr-join``."""
        key, equals, space = text.partition("=")
        bounds, _, kind = space.partition(":log")
        low, dots, high = bounds.partition("..")
        try:
            if not (equals and key and space) or kind:
                raise ValueError
            if not dots:
                return cls(key, tuple(space.split(",")))
            whole = low.lstrip("-").isdigit() and high.lstrip("-").isdigit()
            made = cls(key, (), float(low), float(high), ":log" in space, whole)
        except ValueError:
            raise OptionError(
                f"{text!r} is not a search space: write KEY=LOW..HIGH, KEY=LOW..HIGH:log or KEY=ONE,OTHER, as "
                "optimizer.lr=0.01..0.5:log or model.scheme=lr,lr-join"
            ) from None
        if not -math.inf < made.low < made.high < math.inf or (made.log and made.low <= 0):
            raise OptionError(f"{text!r}: LOW must be smaller than HIGH, both finite, and above 0 for a log range")
        return made

    @property
    def ends(self) -> tuple[Any, ...]:
        """The choices, or the start and end of the range."""
        return self.values or ((int(self.low), int(self.high)) if self.whole else (self.low, self.high))

    def suggest(self, trial: Any) -> Any:
        """Let Optuna suggest a value."""
        if self.values:
            return trial.suggest_categorical(self.key, self.values)
        if self.whole:
            return trial.suggest_int(self.key, int(self.low), int(self.high), log=self.log)
        return trial.suggest_float(self.key, self.low, self.high, log=self.log)


@dataclass(frozen=True)
class Sweep:
    """A recipe and its search space.

    Attributes:
        load: Loads the recipe with overrides, each as ``key=value``.
        searches: The search space.
        trials: Number of trials.
        folder: Where the runs and the journal of the study are stored.
    """

    load: Callable[[Sequence[str]], Recipe]
    searches: Sequence[Search]
    trials: int
    folder: Path


@dataclass(frozen=True)
class SweepTrial:
    """A finished trial.

    Attributes:
        number: Of the trial.
        settings: Its values, by recipe key.
        top1: Top-1 accuracy on the held-out samples; None where it failed.
        reason: Why it failed.
    """

    number: int
    settings: dict[str, Any]
    top1: float | None
    reason: str | None = None


@dataclass(frozen=True)
class SweepResult:
    """The trials of a sweep, the best first.

    Attributes:
        recipe: The recipe.
        trials: All trials.
    """

    recipe: str
    trials: tuple[SweepTrial, ...]

    @property
    def best(self) -> SweepTrial | None:
        """The best trial; None where all failed."""
        return self.trials[0] if self.trials and self.trials[0].top1 is not None else None

    def __str__(self) -> str:
        lines = [f"{self.recipe}, {plural(len(self.trials), 'trial')}, the best first"]
        for trial in self.trials:
            settings = ", ".join(f"{key}={value}" for key, value in trial.settings.items())
            result = trial.reason if trial.top1 is None else f"top-1 accuracy {trial.top1:.2%}"
            lines.append(f"trial {trial.number}: {settings}: {result}")
        return "\n".join(lines)


class Ended(NamedTuple):
    """The result of the run of a trial.

    Attributes:
        number: Of the trial.
        top1: Its accuracy; None where it failed.
        reason: Why it failed.
    """

    number: int
    top1: float | None
    reason: str | None


class Place(ABC):
    """Where trials run.

    Attributes:
        slots: Number of concurrent trials.
    """

    slots: int = 1

    @abstractmethod
    def start(self, number: int, recipe: Recipe, directory: Path) -> None:
        """Start a trial."""

    @abstractmethod
    def wait(self) -> Ended:
        """Return the next trial that ends."""


def run_sweep(sweep: Sweep, *, workers: int | None = None, device: str = "auto") -> Iterator[SweepTrial]:
    """Yield trials as they end, those of earlier starts first. One process at a time may use a folder.

    Args:
        sweep: The recipe and its search space.
        workers: Number of concurrent trials on a Ray cluster; None: one after the other, in this process.
        device: The device of each.
    """
    base = sweep.load(())
    if not base.data.holdout:
        raise RecipeError(
            "a sweep must not select by accuracy on the test set: hold out some training samples, as with "
            "data.holdout=5000"
        )
    keys = [search.key for search in sweep.searches]
    if len(set(keys)) < len(keys) or "data.holdout" in keys:
        raise OptionError(
            f"the search space has {', '.join(keys)}: give each key once, and not data.holdout, which the accuracy of "
            "all trials depends on"
        )
    _check_ends(sweep)
    optuna = _import_optuna()
    with Run(sweep.folder).locked():
        yield from _run(optuna, _open_study(optuna, sweep, base), sweep, workers, device)


def _check_ends(sweep: Sweep) -> None:
    """Raise where all combinations of ends are invalid: a misspelt key would fail in every trial."""
    reason: RecipeError | None = None
    for tried, values in enumerate(product(*(search.ends for search in sweep.searches))):
        if tried == MOST_TRIED:  # another combination may still be valid
            return
        try:
            sweep.load([f"{search.key}={value}" for search, value in zip(sweep.searches, values, strict=True)])
        except RecipeError as error:
            reason = error
        else:
            return
    if reason:
        raise reason


def _run(optuna: Any, study: Any, sweep: Sweep, workers: int | None, device: str) -> Iterator[SweepTrial]:
    failed = optuna.trial.TrialState.FAIL
    waiting = []
    asked = 0
    for trial in study.trials:
        if len(trial.params) < len(sweep.searches):
            # Killed before all values were suggested: nothing was started, another trial replaces it.
            if not trial.state.is_finished():
                study.tell(trial.number, state=failed)
            continue
        asked += 1
        if trial.state.is_finished():
            yield SweepTrial(trial.number, dict(trial.params), trial.value, None if trial.values else "see its log")
        else:
            waiting.append((trial.number, dict(trial.params)))
    with _place(workers, device) as place:
        running: dict[int, dict[str, Any]] = {}
        while True:
            while len(running) < place.slots and (waiting or asked < sweep.trials):
                asked += not waiting
                number, settings = waiting.pop(0) if waiting else _ask(study, sweep.searches)
                try:
                    recipe = sweep.load([f"{key}={value}" for key, value in settings.items()])
                except UNFIT as error:
                    study.tell(number, state=failed)
                    yield SweepTrial(number, settings, None, first_line(error))
                    continue
                place.start(number, recipe, sweep.folder / f"trial-{number:05d}")
                running[number] = settings
            if not running:
                return
            ended = place.wait()
            state = optuna.trial.TrialState.COMPLETE if ended.reason is None else failed
            study.tell(ended.number, ended.top1, state=state)
            yield SweepTrial(ended.number, running.pop(ended.number), ended.top1, ended.reason)


def _ask(study: Any, searches: Sequence[Search]) -> tuple[int, dict[str, Any]]:
    trial = study.ask()
    return trial.number, {search.key: search.suggest(trial) for search in searches}


def _open_study(optuna: Any, sweep: Sweep, base: Recipe) -> Any:
    backend = optuna.storages.journal.JournalFileBackend(str(sweep.folder / JOURNAL))
    study = optuna.create_study(
        study_name="sweep",
        storage=optuna.storages.JournalStorage(backend),
        direction="maximize",
        load_if_exists=True,
    )
    # As it is read from a file: without tuples.
    asked = json.loads(json.dumps({"recipe": base.to_dict(), "searches": [asdict(one) for one in sweep.searches]}))
    changed = differences(study.user_attrs.get(ASKED, asked), asked)
    if changed:
        raise RunError(
            f"{sweep.folder} contains another sweep ({'; '.join(changed)}); resume that one with its own arguments, or "
            "choose another folder"
        )
    study.set_user_attr(ASKED, asked)
    # With the same seed, each start would propose the same settings again.
    study.sampler = optuna.samplers.TPESampler(seed=base.seed + len(study.trials), constant_liar=True)
    return study


def train_trial(recipe: dict[str, Any], directory: str, device: str) -> tuple[float | None, str | None]:
    """Run or resume one trial; return its accuracy, or why it failed."""
    run = Run(Path(directory))
    made = read_table(Recipe, recipe, "the trial's recipe")
    try:
        train(made, run, SingleProcess(pick_device(device)), resume=True)
    except UNFIT as error:
        return None, first_line(error)
    top1: float = run.status()["top1"]
    return top1, None


@contextmanager
def _place(workers: int | None, device: str) -> Iterator[Place]:
    if workers is None:
        yield _Here(device)
        return
    ray = import_ray()
    with cluster(ray):
        yield _OnRay(ray, workers, device)


class _Here(Place):
    def __init__(self, device: str) -> None:
        self._device = device
        self._next: list[tuple[int, Recipe, Path]] = []

    def start(self, number: int, recipe: Recipe, directory: Path) -> None:
        self._next.append((number, recipe, directory))

    def wait(self) -> Ended:
        number, recipe, directory = self._next.pop(0)
        return Ended(number, *train_trial(recipe.to_dict(), str(directory), self._device))


class _OnRay(Place):
    def __init__(self, ray: Any, workers: int, device: str) -> None:
        self.slots, self._ray, self._device = workers, ray, device
        self._remote = ray.remote(
            num_cpus=1,
            num_gpus=int(wants_gpus(ray, device)),
            max_retries=RETRIES,
            retry_exceptions=[Interrupted],  # by a signal, as before a machine is preempted
        )(train_trial)
        self._handles: dict[Any, int] = {}

    def start(self, number: int, recipe: Recipe, directory: Path) -> None:
        handle = self._remote.remote(recipe.to_dict(), str(directory.absolute()), self._device)
        self._handles[handle] = number

    def wait(self) -> Ended:
        (ready,), _ = self._ray.wait(list(self._handles), num_returns=1)
        number = self._handles.pop(ready)
        try:
            return Ended(number, *self._ray.get(ready))
        except self._ray.exceptions.RayError as error:
            if isinstance(cause := getattr(error, "cause", None), CruciformError):
                raise cause from error  # not caused by the settings; as in this process
            return Ended(number, None, f"{type(error).__name__}: {first_line(error)}")


def _import_optuna() -> Any:
    try:
        import optuna
        import optuna.storages.journal
    except ImportError as error:
        raise MissingExtraError(f"sweeps need Optuna ({error}): pip install 'cruciform[ray]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
