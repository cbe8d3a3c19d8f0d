"""A sweep: many runs of a recipe with other settings, proposed by Optuna, placed here or by Ray.

Only this process speaks to the study, whose journal is a file. A trial is a run in a directory of its own: a worker
that dies is started again by Ray and goes on from its last checkpoint; when this process dies, the next start finds
which trials were under way, and goes on with them. Nobody's death needs a heartbeat to be noticed.
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
from cruciform.training.backends.ray import cluster, import_ray, wants_gpus
from cruciform.training.engine.loop import Interrupted, train
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.recipe.table import read_table
from cruciform.training.run.run import Run, differences
from cruciform.training.runtime.runtime import SingleProcess, pick_device

RETRIES = 5
MOST_TRIED = 256  # combinations of ends
JOURNAL = "study.log"
ASKED = "asked"
"""The attribute of a study that says what was swept over."""

UNFIT = (ConversionError, NonFiniteError, OptionError, PlanError, RecipeError, ShapeError, UnknownNameError)
"""What settings of a trial can be at fault for. Missing data or a full disk are no fault of theirs, and end a sweep."""


@dataclass(frozen=True)
class Search:
    """What is tried for one key of the recipe.

    Attributes:
        key: As ``optimizer.rate``.
        values: What it may be, one of these; empty where it is a range.
        low: The least of a range.
        high: The most.
        log: Whether a range is looked through by factors rather than by differences.
        whole: Whether only whole numbers are tried.
    """

    key: str
    values: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False

    @classmethod
    def read(cls, text: str) -> "Search":
        """Reads ``optimizer.rate=0.01..0.5:log``, ``epochs=5..20`` or ``model.scheme=lr,lr-join``."""
        key, equals, given = text.partition("=")
        bounds, _, kind = given.partition(":log")
        low, dots, high = bounds.partition("..")
        try:
            if not (equals and key and given) or kind:
                raise ValueError
            if not dots:
                return cls(key, tuple(given.split(",")))
            whole = low.lstrip("-").isdigit() and high.lstrip("-").isdigit()
            made = cls(key, (), float(low), float(high), ":log" in given, whole)
        except ValueError:
            raise OptionError(
                f"--search {text}: write KEY=LOW..HIGH, KEY=LOW..HIGH:log or KEY=ONE,OTHER, as "
                "--search optimizer.rate=0.01..0.5:log --search model.scheme=lr,lr-join"
            ) from None
        if not -math.inf < made.low < made.high < math.inf or (made.log and made.low <= 0):
            raise OptionError(f"--search {text}: a range goes up, has two ends, and a logarithmic one starts above 0")
        return made

    @property
    def ends(self) -> tuple[Any, ...]:
        """The values, or where a range begins and ends."""
        return self.values or ((int(self.low), int(self.high)) if self.whole else (self.low, self.high))

    def suggest(self, trial: Any) -> Any:
        """Asks Optuna for a value."""
        if self.values:
            return trial.suggest_categorical(self.key, self.values)
        if self.whole:
            return trial.suggest_int(self.key, int(self.low), int(self.high), log=self.log)
        return trial.suggest_float(self.key, self.low, self.high, log=self.log)


@dataclass(frozen=True)
class Sweep:
    """What is swept over.

    Attributes:
        load: Makes the recipe with changes, each as ``key=value``.
        searches: What is tried.
        trials: How many.
        folder: Where the runs and the study's journal are kept.
    """

    load: Callable[[Sequence[str]], Recipe]
    searches: Sequence[Search]
    trials: int
    folder: Path


@dataclass(frozen=True)
class SweepTrial:
    """A trial that has ended.

    Attributes:
        number: Of the trial.
        settings: What was tried.
        top1: Accuracy on the held-out samples; None where the run failed.
        reason: Why it failed.
    """

    number: int
    settings: dict[str, Any]
    top1: float | None
    reason: str | None = None


class Ended(NamedTuple):
    """A run of a trial that has ended.

    Attributes:
        number: Of the trial.
        top1: Its accuracy; None where it failed.
        reason: Why.
    """

    number: int
    top1: float | None
    reason: str | None


class Place(ABC):
    """Where trials run.

    Attributes:
        room: For how many at a time.
    """

    room: int = 1

    @abstractmethod
    def start(self, number: int, recipe: Recipe, directory: Path) -> None:
        """Starts a trial."""

    @abstractmethod
    def wait(self) -> Ended:
        """Returns the next one that ends."""


def run_sweep(sweep: Sweep, *, workers: int | None = None, device: str = "auto") -> Iterator[SweepTrial]:
    """Yields trials as they end, those of earlier starts first. One process at a time may sweep in a folder.

    Args:
        sweep: What is swept over.
        workers: Trials at a time on a Ray cluster; None: one after the other, in this process.
        device: What to compute on.
    """
    base = sweep.load(())
    if not base.data.holdout:
        raise RecipeError(
            "a sweep chooses by the samples that it is judged on, and must not see the test set: hold some training "
            "samples out with --set data.holdout=5000"
        )
    keys = [search.key for search in sweep.searches]
    if len(set(keys)) < len(keys) or "data.holdout" in keys:
        raise OptionError(
            f"--search {' '.join(keys)}: each key once, and not data.holdout, which says what trials are judged on"
        )
    _check_ends(sweep)
    optuna = _import_optuna()
    with Run(sweep.folder).locked():
        yield from _run(optuna, _open_study(optuna, sweep, base), sweep, workers, device)


def _check_ends(sweep: Sweep) -> None:
    """Raises where no recipe takes any of the ends of what is searched: a misspelt key fails in every trial."""
    reason: RecipeError | None = None
    for tried, values in enumerate(product(*(search.ends for search in sweep.searches))):
        if tried == MOST_TRIED:  # so many keys may go together in a way that was not met yet
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
            # Killed between the question and the answer: nothing was started, another one is asked.
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
            while len(running) < place.room and (waiting or asked < sweep.trials):
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
    # As it comes back from a file: without tuples.
    asked = json.loads(json.dumps({"recipe": base.to_dict(), "searches": [asdict(one) for one in sweep.searches]}))
    changed = differences(study.user_attrs.get(ASKED, asked), asked)
    if changed:
        raise RunError(
            f"{sweep.folder} holds another sweep ({'; '.join(changed)}); go on with that one by its own command, or "
            "choose another folder with --runs DIR"
        )
    study.set_user_attr(ASKED, asked)
    # From the same seed alone, each start would propose again what the first one did.
    study.sampler = optuna.samplers.TPESampler(seed=base.seed + len(study.trials), constant_liar=True)
    return study


def train_trial(recipe: dict[str, Any], directory: str, device: str) -> tuple[float | None, str | None]:
    """Runs one trial, or the rest of it; returns its accuracy, or why it failed."""
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
        self.room, self._ray, self._device = workers, ray, device
        self._remote = ray.remote(
            num_cpus=1,
            num_gpus=int(wants_gpus(ray, device)),
            max_retries=RETRIES,
            retry_exceptions=[Interrupted],  # told to end, as machines are before they are taken away
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
                raise cause from error  # no fault of the settings, as in this process
            return Ended(number, None, f"{type(error).__name__}: {first_line(error)}")


def _import_optuna() -> Any:
    try:
        import optuna
        import optuna.storages.journal
    except ImportError as error:
        raise MissingExtraError(f"sweeps need Optuna ({error}): pip install 'cruciform[ray]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
