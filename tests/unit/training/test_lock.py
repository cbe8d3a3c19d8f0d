"""The lock of a run: one process writes, whatever becomes of the lock file and the directory meanwhile."""

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from cruciform.errors import RunError
from cruciform.training.engine.loop import train
from cruciform.training.recipe.python_objects import PythonObjects
from cruciform.training.run.lock import LOCK, hold, is_held
from cruciform.training.run.observer import Observer, StepRecord
from cruciform.training.run.run import Run
from cruciform.training.runtime.runtime import SingleProcess


class At(Observer):
    """Does something after a step."""

    def __init__(self, step: int, action: Callable[[], object]) -> None:
        self._step, self._action = step, action

    def on_step(self, record: StepRecord) -> None:
        if record.step == self._step:
            self._action()


def go(recipe: Any, run: Path, *observers: Observer) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3072, 10))
    train(
        recipe,
        Run(run),
        SingleProcess(torch.device("cpu")),
        resume=True,
        observers=observers,
        inputs=PythonObjects(model=model),
    )


@pytest.fixture
def no_directory_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that can't lock directories, as NFS can't."""
    real = fcntl.flock

    def flock(file: int, operation: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        real(file, operation)

    monkeypatch.setattr(fcntl, "flock", flock)


def test_a_run_stays_locked_when_its_lock_file_is_deleted(make: Any, tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    with run.locked() as lock:
        (run.directory / LOCK).unlink()
        assert run.is_locked()
        with pytest.raises(RunError, match="is being written by another process; wait until it ends"):
            go(make(), run.directory)
        assert not lock.is_lost()
    assert not run.is_locked()
    go(make(), run.directory)


def test_a_process_whose_lock_file_was_deleted_goes_on_and_ends_well(make: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    go(make(), run, At(2, (run / LOCK).unlink))
    assert Run(run).status()["state"] == "done"


@pytest.mark.parametrize("action", ["deleted", "moved", "made again"])
def test_a_process_whose_run_was_deleted_or_moved_stops_and_writes_nothing(
    make: Any, tmp_path: Path, action: str
) -> None:
    run = tmp_path / "run"

    def strike() -> None:
        if action == "moved":
            run.rename(tmp_path / "elsewhere")
        else:
            shutil.rmtree(run)
        if action == "made again":
            run.mkdir()

    unheard = make(log={"tensorboard": False, "steps": 50})
    later = At(3, lambda: pytest.fail("a step was taken that can't be kept"))
    with pytest.raises(RunError, match="no longer locked by this process: it was deleted, moved or replaced"):
        go(unheard, run, At(2, strike), later)
    assert list(run.glob("*")) == [], "not even the end is logged there: it may be another's run by now"


@pytest.mark.usefixtures("no_directory_locks")
@pytest.mark.parametrize("taken", [False, True])
def test_where_directories_can_not_be_locked_the_first_process_stops_when_its_lock_file_is_gone(
    make: Any, tmp_path: Path, taken: bool
) -> None:
    run = tmp_path / "run"

    def strike() -> None:
        (run / LOCK).unlink()
        if taken:
            (run / LOCK).write_text("process 1")

    recipe = make(checkpoint={"steps": 1})
    with pytest.raises(RunError, match="its file lock was deleted, moved or replaced"):
        go(recipe, run, At(2, strike))
    found, _ = Run(run).checkpoints().load_newest()
    assert found is not None
    assert found.step == 1, "of step 2 nothing was written"
    assert '"end"' not in (run / "log.jsonl").read_text(), "another process may be writing the log"
    go(recipe, run)


@pytest.mark.usefixtures("no_directory_locks")
def test_where_directories_can_not_be_locked_the_lock_file_is(make: Any, tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    with run.locked():
        assert run.is_locked()
        with pytest.raises(RunError, match=f"is being written by process {os.getpid()}"):
            go(make(), run.directory)
    assert not run.is_locked()


def test_a_lock_file_that_is_replaced_while_it_is_being_locked_is_locked_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, real, struck = Run(tmp_path / "run"), fcntl.flock, []

    def flock(file: int, operation: int) -> None:
        if stat.S_ISREG(os.fstat(file).st_mode) and not struck:
            struck.append(file)
            (run.directory / LOCK).unlink()
        real(file, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    with run.locked():
        assert struck
        assert (run.directory / LOCK).read_text() == f"process {os.getpid()}"


def test_a_version_that_locks_the_file_alone_is_respected(make: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    with (run / LOCK).open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert Run(run).is_locked()
        with pytest.raises(RunError, match="is being written by"):
            go(make(), run)


def test_a_run_that_is_moved_away_while_it_is_saved_is_not_made_again(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the lock and the first write."""
    from cruciform.training.run.checkpoint import Checkpoints

    run, real = tmp_path / "run", Checkpoints.save

    def move_and_save(self: Checkpoints, *given: Any, **options: Any) -> Path:
        run.rename(tmp_path / "elsewhere")
        return real(self, *given, **options)

    monkeypatch.setattr(Checkpoints, "save", move_and_save)
    with pytest.raises(RunError, match="it was deleted, moved or replaced"):
        go(make(), run)
    assert not run.exists()


@pytest.mark.timeout(10)
def test_a_pipe_in_place_of_the_lock_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / LOCK)
    assert not is_held(tmp_path)
    with pytest.raises(RunError, match="a pipe or a device; delete it"), hold(tmp_path):
        pass
