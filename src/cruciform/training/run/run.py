"""A run: a directory with everything about it. One process at a time may write to it.

::

    RUN/recipe.json    what it computes
    RUN/id             its unique id, which its checkpoints record
    RUN/log.jsonl      its log
    RUN/checkpoints/   what it can resume from
    RUN/model/         the network that it started from, where that is a model directory
    RUN/tensorboard/   the log for TensorBoard
    RUN/lock           names the process that writes. The directory itself is locked; the system unlocks it when that
                       process ends, however it ends
"""

import secrets
import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from cruciform.errors import CruciformError, RunError
from cruciform.files import read_text, sweep, write_text
from cruciform.store.directory import CARD, copy_network
from cruciform.store.run_marker import RUN_RECIPE, is_run
from cruciform.training.recipe.cookbook import load_recipe
from cruciform.training.recipe.recipe import AUTO_PRECISION, ModelTable, Recipe
from cruciform.training.run.checkpoint import Checkpoints
from cruciform.training.run.journal import read_journal
from cruciform.training.run.lock import LOCK, Lock, hold, is_held

State = Literal["running", "done", "interrupted", "failed", "stopped"]

ID = "id"

FREE = frozenset({"checkpoint", "log", "nan_policy", "data.max_bad", "data.path", "data.threads"})
"""Recipe keys that may change when a run is resumed: they don't change what it computes from valid data."""


@dataclass(frozen=True)
class RunStatus:
    """The state of a run.

    Attributes:
        run: Its directory.
        model: Its network; None where the run can't be read.
        state: ``running``, ``done``, ``interrupted``, ``failed``, ``stopped`` (ended without a log entry), or
            ``unreadable``.
        epochs: Epochs finished.
        of: Epochs in all; None where the run can't be read.
        step: Steps taken.
        top1: Latest top-1 accuracy; None before the first evaluation.
        starts: How often it was started.
        reason: Why it ended, or can't be read; None: no reason recorded.
    """

    run: str
    model: str | None
    state: str
    epochs: int
    of: int | None
    step: int
    top1: float | None
    starts: int
    reason: str | None

    def __str__(self) -> str:
        accuracy = "" if self.top1 is None else f", top-1 accuracy {self.top1:.2%}"
        reason = f" ({self.reason})" if self.reason else ""
        return f"{self.run}: {self.state}{reason}, {self.epochs} of {self.of or '?'} epochs{accuracy}"


@dataclass(frozen=True)
class Run:
    """A run.

    Attributes:
        directory: Its location.
    """

    directory: Path

    @property
    def log(self) -> Path:
        """The log."""
        return self.directory / "log.jsonl"

    @property
    def exists(self) -> bool:
        """Whether the directory contains a run."""
        return is_run(self.directory)

    @property
    def has_begun(self) -> bool:
        """Whether it has started training. One that failed before, without its data, has nothing to resume."""
        started = any(line.get("event") == "start" for line in read_journal(self.log))
        return started or any(self.checkpoints().folder.glob("*"))

    def checkpoints(self, keep: int = 2) -> Checkpoints:
        """Its checkpoints."""
        return Checkpoints(self.directory / "checkpoints", keep)

    def recipe(self) -> Recipe:
        """Its recipe."""
        if not self.exists:
            raise RunError(f"{self.directory} is not a run: it has no {RUN_RECIPE}")
        return load_recipe(self.directory)

    @property
    def id(self) -> str | None:
        """Its unique id; None for runs of older versions."""
        path = self.directory / ID
        return read_text(path).strip() if path.is_file() else None

    def settled(self, recipe: Recipe) -> Recipe:
        """Return the recipe with the precision that the run started with, where the recipe has ``auto``."""
        if recipe.precision != AUTO_PRECISION or not self.exists or not self.has_begun:
            return recipe
        own = self.recipe().precision
        return recipe.model_copy(update={"precision": own}) if _may_be_the_same(own, recipe.precision) else recipe

    def prepare(self, recipe: Recipe, *, resume: bool) -> None:
        """Create the directory, or check that its recipe is the same except for keys that may change.

        A run that has not started training may get another recipe.
        """
        sweep(self.directory)  # files of a start that was killed
        if not self.exists and any(path.name != LOCK for path in self.directory.glob("*")):
            raise RunError(f"{self.directory} exists and is not a run; choose another directory")
        if not self.exists or not self.has_begun:
            self.directory.mkdir(parents=True, exist_ok=True)
            if self.network(recipe) == recipe.model:  # the copy, if there is one, belongs to another recipe
                shutil.rmtree(self._network, ignore_errors=True)
            self._write(recipe)
            self._keep_network(recipe.model)
            self._make_id()
            return
        if not resume:
            raise RunError(f"{self.directory} already contains a run; resume it, or choose another directory")
        own, recipe = self.recipe(), self.settled(recipe)
        changed = differences(own.to_dict(), recipe.to_dict())
        if changed:
            raise RunError(
                f"{self.directory} was started with another recipe ({'; '.join(changed)}). A run resumes with its own "
                f"recipe, of which only {', '.join(sorted(FREE))} may change: give {self.directory} as the recipe"
            )
        if own != recipe:  # worker processes read it here
            self._write(recipe)
        self._make_id()

    def network(self, recipe: Recipe) -> ModelTable:
        """Return the model table of a recipe, with the path of the run's copy where it has one."""
        kept = (self._network / CARD).is_file() and self.exists and self.recipe().model == recipe.model
        return recipe.model.model_copy(update={"name": str(self._network)}) if kept else recipe.model

    @property
    def _network(self) -> Path:
        return self.directory / "model"

    def _keep_network(self, table: ModelTable) -> None:
        """Copy the model directory that it starts from: the run must resume if that is moved or overwritten."""
        if not table.python_object and (Path(table.name) / CARD).is_file():
            copy_network(Path(table.name), self._network)

    def _make_id(self) -> None:
        if not self.id:
            write_text(self.directory / ID, f"{secrets.token_hex(8)}\n")

    def _write(self, recipe: Recipe) -> None:
        write_text(self.directory / RUN_RECIPE, recipe.model_dump_json(indent=2) + "\n")

    def locked(self) -> AbstractContextManager[Lock]:
        """Hold the lock of the run; raise where another process does."""
        return hold(self.directory)

    def is_locked(self) -> bool:
        """Return whether a process is writing to it."""
        return is_held(self.directory)

    def status(self) -> dict[str, Any]:
        """Return its state, from its log."""
        lines = read_journal(self.log)
        recipe = self.recipe()
        epochs = [line for line in lines if line["event"] == "epoch"]
        last: dict[str, Any] = lines[-1] if lines else {}
        ended = last.get("event") == "end" and last.get("state") in get_args(State)
        state: State = "running" if self.is_locked() else last["state"] if ended else "stopped"
        return {
            "run": str(self.directory),
            "model": recipe.model.label,
            "state": state,
            "epochs": len(epochs),
            "of": recipe.epochs,
            "step": max((line.get("step", 0) for line in lines), default=0),
            "top1": next((line["top1"] for line in reversed(epochs) if line.get("top1") is not None), None),
            "starts": sum(line["event"] == "start" for line in lines),
            "reason": last.get("reason") if ended else None,
        }


def read_status(run: Run) -> RunStatus:
    """Return the state of a run; ``unreadable`` with the reason where it can't be read."""
    try:
        return RunStatus(**run.status())
    except CruciformError as error:
        return RunStatus(str(run.directory), None, "unreadable", 0, None, 0, None, 0, str(error))


def find_runs(folder: Path) -> list[Run]:
    """Return all runs in a folder and its subfolders, by name."""
    return [Run(path.parent) for path in sorted(folder.rglob(RUN_RECIPE))]


def differences(old: Mapping[str, Any], new: Mapping[str, Any], path: str = "") -> list[str]:
    """Return the differences of two recipes, as plain data, that change what is computed."""
    found = []
    for key in sorted({*old, *new}):
        before, after, here = old.get(key), new.get(key), f"{path}{key}"
        if here in FREE:
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            found += differences(before, after, f"{here}.")
        elif before != after and not (key == "precision" and _may_be_the_same(before, after)):
            found.append(f"{here} was {before}, now {after}")
    return found


def _may_be_the_same(*precisions: Any) -> bool:
    """Return whether one of two precisions is ``auto`` and may have been resolved to the other."""
    return AUTO_PRECISION in precisions and all(one in (AUTO_PRECISION, "bf16", "fp32") for one in precisions)
