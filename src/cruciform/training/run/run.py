"""A run: a directory that holds all there is of it. One process at a time may write to it.

::

    RUN/recipe.json    what it computes
    RUN/id             what tells it from all other runs; its checkpoints have it too
    RUN/log.jsonl      what happened
    RUN/checkpoints/   what it can go on from
    RUN/model/         the network that it began with, where that was read from a model directory
    RUN/tensorboard/   the log once more, drawn
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

from cruciform.errors import RunError
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

# What may differ between the recipe of a run and the one it is gone on with: how it is watched and kept, where its data
# lies, and what becomes of steps and samples that failed.
FREE = frozenset({"checkpoint", "log", "nonfinite", "data.max_bad", "data.path", "data.threads"})


@dataclass(frozen=True)
class Run:
    """A run.

    Attributes:
        directory: Where it lies.
    """

    directory: Path

    @property
    def log(self) -> Path:
        """The log."""
        return self.directory / "log.jsonl"

    @property
    def exists(self) -> bool:
        """Whether there is a run here."""
        return is_run(self.directory)

    @property
    def has_begun(self) -> bool:
        """Whether it came as far as its first step. One that failed before, for want of its data, holds nothing."""
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
        """What tells it from all other runs; None where it has none, as those that older versions have made."""
        path = self.directory / ID
        return read_text(path).strip() if path.is_file() else None

    def settled(self, recipe: Recipe) -> Recipe:
        """Returns the recipe with the precision that the run began with, where the recipe leaves it open."""
        if recipe.precision != AUTO_PRECISION or not self.exists or not self.has_begun:
            return recipe
        own = self.recipe().precision
        return recipe.model_copy(update={"precision": own}) if _may_be_the_same(own, recipe.precision) else recipe

    def prepare(self, recipe: Recipe, *, resume: bool) -> None:
        """Makes the directory, or finds that it is of the same recipe, but for what may change. That is written down.

        A run that never began may get another recipe.
        """
        sweep(self.directory)  # a start that was killed while it wrote the recipe
        if not self.exists and any(path.name != LOCK for path in self.directory.glob("*")):
            raise RunError(f"{self.directory} exists and is not a run; choose another with --run DIR")
        if not self.exists or not self.has_begun:
            self.directory.mkdir(parents=True, exist_ok=True)
            if self.network(recipe) == recipe.model:  # what is kept, if anything, is of another recipe
                shutil.rmtree(self._network, ignore_errors=True)
            self._write(recipe)
            self._keep_network(recipe.model)
            self._make_id()
            return
        if not resume:
            raise RunError(
                f"{self.directory} holds a run already; go on with it with --resume, or choose another with --run DIR"
            )
        own, recipe = self.recipe(), self.settled(recipe)
        changed = differences(own.to_dict(), recipe.to_dict())
        if changed:
            raise RunError(
                f"{self.directory} was started with another recipe ({'; '.join(changed)}); a run goes on with its own, "
                f"of which only {', '.join(sorted(FREE))} may change: cruciform train {self.directory} --resume"
            )
        if own != recipe:  # processes that others start read it here
            self._write(recipe)
        self._make_id()

    def network(self, recipe: Recipe) -> ModelTable:
        """What a recipe says of the network; where the run keeps a copy of it, that is what is read."""
        kept = (self._network / CARD).is_file() and self.exists and self.recipe().model == recipe.model
        return recipe.model.model_copy(update={"name": str(self._network)}) if kept else recipe.model

    @property
    def _network(self) -> Path:
        return self.directory / "model"

    def _keep_network(self, table: ModelTable) -> None:
        """Copies a model directory that it begins with: that may be moved or written anew, and the run goes on."""
        if not table.given and (Path(table.name) / CARD).is_file():
            copy_network(Path(table.name), self._network)

    def _make_id(self) -> None:
        if not self.id:
            write_text(self.directory / ID, f"{secrets.token_hex(8)}\n")

    def _write(self, recipe: Recipe) -> None:
        write_text(self.directory / RUN_RECIPE, recipe.model_dump_json(indent=2) + "\n")

    def locked(self) -> AbstractContextManager[Lock]:
        """Holds the lock of the run, or raises where another process does."""
        return hold(self.directory)

    def is_locked(self) -> bool:
        """Whether a process writes to it now."""
        return is_held(self.directory)

    def status(self) -> dict[str, Any]:
        """Returns where it stands, from its log."""
        lines = read_journal(self.log)
        recipe = self.recipe()
        epochs = [line for line in lines if line["event"] == "epoch"]
        last: dict[str, Any] = lines[-1] if lines else {}
        ended = last.get("event") == "end" and last.get("state") in get_args(State)
        state: State = "running" if self.is_locked() else last["state"] if ended else "stopped"
        return {
            "run": str(self.directory),
            "model": recipe.model.what,
            "state": state,
            "epochs": len(epochs),
            "of": recipe.epochs,
            "step": max((line.get("step", 0) for line in lines), default=0),
            "top1": next((line["top1"] for line in reversed(epochs) if line.get("top1") is not None), None),
            "starts": sum(line["event"] == "start" for line in lines),
            "reason": last.get("reason") if ended else None,
        }


def find_runs(folder: Path) -> list[Run]:
    """Returns all runs below a folder, by name."""
    return [Run(path.parent) for path in sorted(folder.rglob(RUN_RECIPE))]


def differences(old: Mapping[str, Any], new: Mapping[str, Any], path: str = "") -> list[str]:
    """Returns in what two recipes, as plain data, compute something else."""
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
    """Tells whether one of two precisions may have been the other before ``auto`` was settled."""
    return AUTO_PRECISION in precisions and all(one in (AUTO_PRECISION, "bf16", "fp32") for one in precisions)
