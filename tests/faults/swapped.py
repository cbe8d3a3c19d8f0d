"""Faults by exchange: other data, another run's checkpoint, an edited recipe, a lock that is deleted.

Everything is whole, and nothing is what the run began with. It must refuse, and go on exactly once it is put right.
"""

import errno
import fcntl
import json
import os
import shutil
import signal
import stat
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from fault import Trial, Violation, fault
from work import DEADLINE, STEPS, finish, launch, reason, recipe, wait

from cruciform.data.sets.cifar10 import FILES, RECORD
from cruciform.store.run_marker import RUN_RECIPE
from cruciform.training.engine.learner import Learner
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.run.journal import read_journal
from cruciform.training.run.lock import LOCK
from cruciform.training.run.run import Run


def begin(made: Recipe, run: Run, step: int) -> None:
    """Starts a run that is killed in a step; checkpoints are of every second one."""

    def arm() -> None:
        taken = Learner.step

        def killed(self: Learner, batch: Any, number: int, *more: Any, **options: Any) -> Any:
            if number == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return taken(self, batch, number, *more, **options)

        Learner.step = killed  # type: ignore[method-assign]

    run.directory.parent.mkdir(parents=True, exist_ok=True)
    if (code := wait(launch(made, run, arm))) != -signal.SIGKILL:
        raise Violation("I4", f"it could not be begun: code {code}")


def refused(made: Recipe, run: Run, code: int, error: str) -> None:
    """A start must end with a code, and the log must say why."""
    if (ended := wait(launch(made, run))) != code:
        raise Violation("I5", f"ended with {ended}, not with {code}")
    reason(run, error)


def _records(path: Path) -> Any:
    return np.fromfile(path, np.uint8).reshape(-1, RECORD)


def _inverted(records: Any) -> Any:
    return np.concatenate([records[:, :1], 255 - records[:, 1:]], axis=1)


def _relabeled(records: Any) -> Any:
    return np.concatenate([9 - records[:, :1], records[:, 1:]], axis=1)


def _reversed(records: Any) -> Any:
    return records[::-1]


CHANGES: tuple[Callable[[Any], Any], ...] = (_inverted, _relabeled, _reversed)
PARTS = (FILES["train"], FILES["test"], FILES["train"][2:3])


@fault("F21 other data of the same size", 36)
def data(trial: Trial) -> int:
    """Pixels, labels or the order of all training data, of all test data or of one file of five are others."""
    folder = trial.folder / "data"
    shutil.copytree(trial.shared / "data", folder)
    run, made = Run(trial.folder / "run"), recipe(trial.shared, data={"path": str(folder)})
    begin(made, run, trial.random.randrange(3, STEPS))
    change, part = CHANGES[trial.number % 3], PARTS[trial.number // 3 % 3]
    for name in part:
        (folder / name).write_bytes(np.ascontiguousarray(change(_records(folder / name))).tobytes())
    refused(made, run, 4, "DataError")
    for name in part:
        shutil.copy(trial.shared / "data" / name, folder / name)
    finish(made, run, trial.shared)
    return 1


@fault("F22 a checkpoint of another run or seed", 24)
def checkpoint(trial: Trial) -> int:
    """It is newer than all of the run's own, or has taken the place of one."""
    run, made = Run(trial.folder / "run"), recipe(trial.shared)
    other = Run(trial.folder / "other" / "run")
    seed, replacing = divmod(trial.number % 4, 2)
    step = trial.random.randrange(3, STEPS - 3)
    begin(made, run, step)
    begin(made.model_copy(update={"seed": seed}), other, step if replacing else step + 3)
    foreign = max(other.checkpoints().folder.glob("step-*"))
    place, aside = run.checkpoints().folder / foreign.name, trial.folder / "aside"
    if replacing:
        place.rename(aside)
    shutil.copytree(foreign, place)
    refused(made, run, 7, "RunError")
    shutil.rmtree(place)
    if replacing:
        aside.rename(place)
    finish(made, run, trial.shared)
    return 1


EDITS: tuple[Callable[[dict[str, Any]], object], ...] = (
    lambda made: made.update(seed=1),
    lambda made: made.update(epochs=2),
    lambda made: made.update(epochs=30),
    lambda made: made.update(batch_size=25),
    lambda made: made["optimizer"].update(lr=0.5),
    lambda made: made["loss"].update(mixup=0.0),
    lambda made: made.update(train_transforms=[]),
    lambda made: made.update(ema=None),
)


@fault("F23 a recipe edited in the run", 24)
def edited(trial: Trial) -> int:
    """Somebody edits RUN/recipe.json and resumes by it."""
    run, made = Run(trial.folder / "run"), recipe(trial.shared)
    begin(made, run, trial.random.randrange(3, STEPS))
    path = run.directory / RUN_RECIPE
    before = path.read_text()
    table = json.loads(before)
    EDITS[trial.number % len(EDITS)](table)
    path.write_text(json.dumps(table))
    refused(run.recipe(), run, 7, "RunError")
    path.write_text(before)
    finish(run.recipe(), run, trial.shared)
    return 1


WAYS = ("deleted", "replaced", "no directory locks", "moved")


def _slow(*, directories: bool) -> Callable[[], None]:
    """Makes steps take their time, and directories ones that can't be locked, as on NFS."""

    def arm() -> None:
        taken, real = Learner.step, fcntl.flock

        def slowly(*given: Any, **options: Any) -> Any:
            time.sleep(0.03)
            return taken(*given, **options)

        def flock(file: int, operation: int) -> None:
            if stat.S_ISDIR(os.fstat(file).st_mode):
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            real(file, operation)

        Learner.step = slowly  # type: ignore[method-assign]
        if not directories:
            fcntl.flock = flock  # type: ignore[assignment]

    return arm


def _reach(run: Run, step: int) -> None:
    until = time.monotonic() + DEADLINE
    while time.monotonic() < until:
        if any(line.get("step", 0) >= step and line["event"] == "step" for line in read_journal(run.log)):
            return
        time.sleep(0.002)
    raise Violation("I4", f"step {step} was not reached")


@fault("F24 the lock of a process that writes is deleted", 24)
def lock(trial: Trial) -> int:
    """The second process is refused; where only files can be locked, the first one stops. Never do two write."""
    run, made = Run(trial.folder / "run"), recipe(trial.shared)
    way = WAYS[trial.number % len(WAYS)]
    arm = _slow(directories=way != "no directory locks")
    first = launch(made, run, arm)
    _reach(run, trial.random.randrange(1, STEPS - 6))
    if way == "moved":
        run.directory.rename(trial.folder / "elsewhere")
        code, left = wait(first), [str(path) for path in run.directory.rglob("*")]
        if code != 7 or run.directory.exists():
            raise Violation("I6", f"its run was moved, and it ended with {code}; what it wrote there: {left}")
        (trial.folder / "elsewhere").rename(run.directory)
        finish(made, run, trial.shared)
        return 1
    (run.directory / LOCK).unlink()
    if way == "replaced":
        (run.directory / LOCK).write_text("")
    second = launch(made, run, arm)
    codes = wait(first), wait(second)
    # In the first case it may have been amidst a save, which the second one swept away.
    if codes not in (((7, 0), (5, 0)) if way == "no directory locks" else ((0, 7),)):
        raise Violation("I6", f"{way}: the first ended with {codes[0]}, the second with {codes[1]}")
    _check_one_writer(run, starts=1 + (codes[1] == 0))
    finish(made, run, trial.shared)
    return 1


def _check_one_writer(run: Run, starts: int) -> None:
    """Each process counts its own seconds in the log: two that write at once would go back and forth."""
    lines = [json.loads(line) for line in run.log.read_text().splitlines()]
    back = sum(later["seconds"] < earlier["seconds"] for earlier, later in pairwise(lines))
    found = sum(line["event"] == "start" for line in lines)
    if back != starts - 1 or found != starts:
        raise Violation("I6", f"the log has {found} starts, and its clock went back {back} times")
