"""The loop on a small network: what it promises, each promise with the bug that would break it."""

import shutil
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from cruciform.errors import CheckpointError, NonFiniteError
from cruciform.machine import processor
from cruciform.training.engine.loop import Interrupted, train
from cruciform.training.recipe.python_objects import PythonObjects
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.run.journal import read_journal
from cruciform.training.run.observer import Observer, StepRecord
from cruciform.training.run.run import Run, find_runs
from cruciform.training.runtime.runtime import SingleProcess

SAMPLES = 50


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cifar")
    numbers = np.random.default_rng(0)
    for name in (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"):
        records = numbers.integers(0, 256, (SAMPLES // 5, 3073), dtype=np.uint8)
        records[:, 0] %= 10
        (folder / f"{name}.bin").write_bytes(records.tobytes())
    return folder


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=4), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(256, 10)
    )


def go(recipe: Recipe, run: Path, *observers: Observer, model: nn.Module | None = None, **options: Any) -> Any:
    inputs = PythonObjects(model=model or network(), **options)
    return train(recipe, Run(run), SingleProcess(torch.device("cpu")), resume=True, observers=observers, inputs=inputs)


def weights(run: Path) -> dict[str, Tensor]:
    checkpoint, problems = Run(run).checkpoints().load_newest()
    assert checkpoint is not None
    assert not problems
    return checkpoint.tensors


def equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


class At(Observer):
    """Does something after one step."""

    def __init__(self, step: int, action: Any) -> None:
        self.step, self.action = step, action

    def on_step(self, record: StepRecord) -> None:
        if record.step == self.step:
            self.action()


class Steps(Observer):
    """Writes down which steps were taken."""

    def __init__(self, taken: list[int]) -> None:
        self.taken = taken

    def on_step(self, record: StepRecord) -> None:
        self.taken.append(record.step)


def test_a_run_learns_logs_and_can_be_looked_at(make: Any, tmp_path: Path) -> None:
    recipe = make(
        epochs=10, train_transforms=[], optimizer={"kind": "adamw", "lr": 0.01}, log={"tensorboard": True, "steps": 1}
    )
    go(recipe, tmp_path / "run")
    lines = read_journal(tmp_path / "run" / "log.jsonl")
    epochs = [line for line in lines if line["event"] == "epoch"]
    assert len(epochs) == 10
    assert epochs[-1]["train_loss"] < 0.7 * epochs[0]["train_loss"]
    assert epochs[0]["samples"] == SAMPLES // 5
    assert len([line for line in lines if line["event"] == "step"]) == 40
    assert lines[-1]["state"] == "done"
    assert list((tmp_path / "run" / "tensorboard").iterdir())
    (status,) = [run.status() for run in find_runs(tmp_path)]
    assert (status["state"], status["epochs"], status["of"], status["starts"]) == ("done", 10, 10, 1)
    assert status["top1"] == epochs[-1]["top1"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("step", [1, 4, 6, 12])
def test_a_signal_saves_and_going_on_gives_the_same_weights(
    make: Any, tmp_path: Path, number: signal.Signals, step: int
) -> None:
    go(make(), tmp_path / "whole")
    with pytest.raises(Interrupted) as stopped:
        go(make(), tmp_path / "broken", At(step, lambda: signal.raise_signal(number)))
    assert stopped.value.signal == number
    assert Run(tmp_path / "broken").status()["state"] == "interrupted"
    go(make(), tmp_path / "broken")
    assert equal(weights(tmp_path / "whole"), weights(tmp_path / "broken"))
    figures = [
        [line["top1"] for line in read_journal(tmp_path / name / "log.jsonl") if line["event"] == "epoch"]
        for name in ("whole", "broken")
    ]
    assert figures[0] == figures[1], "every epoch is judged once, whenever the signal came"


def test_an_exception_anywhere_and_going_on_gives_the_same_weights(make: Any, tmp_path: Path) -> None:
    recipe = make(checkpoint={"steps": 1}, ema=0.9, loss={"mixup": 0.2})

    def fail() -> None:
        raise OSError("anything")

    go(recipe, tmp_path / "whole")
    for step in (1, 3, 4, 5, 11):
        with pytest.raises(OSError, match="anything"):
            go(recipe, tmp_path / "broken", At(step, fail))
    go(recipe, tmp_path / "broken")
    assert equal(weights(tmp_path / "whole"), weights(tmp_path / "broken"))
    assert Run(tmp_path / "broken").status()["starts"] == 6


def test_going_on_with_a_finished_run_changes_nothing(make: Any, tmp_path: Path) -> None:
    go(make(), tmp_path / "run")
    before = weights(tmp_path / "run")
    go(make(), tmp_path / "run")
    assert equal(before, weights(tmp_path / "run"))


def test_other_global_random_numbers_do_not_matter(make: Any, tmp_path: Path) -> None:
    go(make(), tmp_path / "a")
    go(make(), tmp_path / "b", At(3, lambda: torch.manual_seed(99)))
    assert equal(weights(tmp_path / "a"), weights(tmp_path / "b"))
    go(make(seed=1), tmp_path / "c")
    assert not equal(weights(tmp_path / "a"), weights(tmp_path / "c"))


def test_every_sample_is_seen_once_an_epoch(make: Any, tmp_path: Path) -> None:
    recipe = make(log={"samples": True, "tensorboard": False})
    go(recipe, tmp_path / "run")
    (log,) = (tmp_path / "run" / "samples").iterdir()
    seen = [number for line in read_journal(log) for number in line["numbers"]]
    assert len(seen) == 3 * SAMPLES
    for epoch in range(3):
        assert sorted(seen[epoch * SAMPLES : (epoch + 1) * SAMPLES]) == list(range(SAMPLES))


class Poison(nn.Module):
    """Turns its output into NaN at some steps."""

    def __init__(self, *steps: int) -> None:
        super().__init__()
        self.steps, self.calls, self.inner = steps, 0, network()

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.calls += 1
        result: Tensor = self.inner(x)
        return result * float("nan") if self.training and self.calls in self.steps else result


def test_a_loss_that_is_no_number_stops_and_names_the_last_checkpoint(make: Any, tmp_path: Path) -> None:
    with pytest.raises(NonFiniteError, match="the gradient of step 6 is NaN or Inf.*last checkpoint is of step 4"):
        go(make(), tmp_path / "run", model=Poison(6))
    assert Run(tmp_path / "run").status()["state"] == "failed"
    go(make(), tmp_path / "run", model=Poison())


@pytest.mark.parametrize("channels_last", [False, True])
def test_images_lie_in_memory_as_the_recipe_says(make: Any, tmp_path: Path, channels_last: bool) -> None:
    seen = []

    class Watcher(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(
                x.is_contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)
            )
            return super().forward(x)  # type: ignore[no-any-return]

    go(make(epochs=1, channels_last=channels_last), tmp_path / "run", model=Watcher(network()))
    assert all(seen)


def test_skipping_goes_on_without_the_step(make: Any, tmp_path: Path) -> None:
    go(make(nan_policy="skip"), tmp_path / "run", model=Poison(2, 6))
    notices = [line for line in read_journal(tmp_path / "run" / "log.jsonl") if line["event"] == "notice"]
    assert [line["step"] for line in notices] == [2, 6]
    assert all(torch.isfinite(tensor).all() for tensor in weights(tmp_path / "run").values())


def test_rolling_back_returns_to_the_last_checkpoint_and_goes_on_behind_the_step(make: Any, tmp_path: Path) -> None:
    recipe = make(nan_policy="rollback")
    seen: dict[int, Any] = {}

    class Look(Observer):
        def on_step(self, record: StepRecord) -> None:
            seen[record.step] = record

    model = Poison(6)
    go(recipe, tmp_path / "run", Look(), model=model)
    assert sorted(seen) == list(range(1, 13))
    (notice,) = [line for line in read_journal(tmp_path / "run" / "log.jsonl") if line["event"] == "notice"]
    assert "rolled back to the weights of step 4" in notice["message"]
    # There must be something to go back to.
    with pytest.raises(NonFiniteError, match="no checkpoint to roll back to yet"):
        go(recipe, tmp_path / "other", model=Poison(2))


def test_what_was_rolled_back_took_its_time_all_the_same(make: Any, tmp_path: Path) -> None:
    """The second epoch of four steps rolls back in its last; half a second of it was before."""
    go(make(nan_policy="rollback"), tmp_path / "run", At(6, lambda: time.sleep(0.5)), model=Poison(8))
    epochs = [line for line in read_journal(tmp_path / "run" / "log.jsonl") if line["event"] == "epoch"]
    assert epochs[1]["seconds_training"] > 0.5


def test_a_checkpoint_that_is_given_counts_only_where_the_run_has_none_that_is_newer(make: Any, tmp_path: Path) -> None:
    """As on Ray, which keeps copies of its own: another backend may have gone on since."""
    recipe, run = make(checkpoint={"keep": 9}), tmp_path / "run"
    go(recipe, run)
    whole = weights(run)
    copy = tmp_path / "copy"
    shutil.copytree(run / "checkpoints" / "step-00000004", copy)
    shutil.rmtree(run / "checkpoints" / "step-00000012")
    steps: list[int] = []
    go(recipe, run, Steps(steps), start=copy)
    assert steps == [9, 10, 11, 12], "from the run's own, of step 8"
    shutil.rmtree(run / "checkpoints")
    go(recipe, run, Steps(steps), start=copy)
    assert steps[4:] == list(range(5, 13)), "from the copy, where there is no other"
    assert equal(weights(run), whole)
    (copy / "state.json").write_text("")
    shutil.rmtree(run / "checkpoints" / "step-00000012")
    go(recipe, run, Steps(steps), start=copy)
    assert steps[-4:] == [9, 10, 11, 12], "nor does a damaged copy stand in the way"


def test_a_network_that_keeps_failing_is_given_up(make: Any, tmp_path: Path) -> None:
    with pytest.raises(NonFiniteError, match="the gradient of step 11"):
        go(make(nan_policy="skip"), tmp_path / "run", model=Poison(*range(1, 40)))


def test_a_checkpoint_that_cannot_be_written_ends_the_run(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cruciform import files

    sync = files.sync

    def full(path: Path) -> None:
        if "step-00000008" in str(path):
            raise OSError(28, "No space left on device")
        sync(path)

    monkeypatch.setattr(files, "sync", full)
    with pytest.raises(CheckpointError, match="of step 8 can't be written: the disk is full.*last valid checkpoint is"):
        go(make(), tmp_path / "run")
    monkeypatch.undo()
    go(make(), tmp_path / "whole")
    go(make(), tmp_path / "run")
    assert equal(weights(tmp_path / "whole"), weights(tmp_path / "run"))


@pytest.mark.parametrize(("flags", "notices"), [("avx512f", 1), ("avx512f amx_bf16", 0)])
def test_a_precision_that_is_emulated_here_is_noticed(
    flags: str, notices: int, make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpuinfo").write_text(f"flags : {flags}\n", "utf-8")
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "cpuinfo")
    for precision, expected in (("bf16", notices), ("fp32", 0)):
        go(make(precision=precision, epochs=1), tmp_path / precision)
        found = [line for line in read_journal(tmp_path / precision / "log.jsonl") if line["event"] == "notice"]
        assert len(found) == expected
        assert all("precision=fp32" in line["message"] for line in found)


def test_a_damaged_checkpoint_is_passed_over_and_noticed(make: Any, tmp_path: Path) -> None:
    go(make(), tmp_path / "run")
    before = weights(tmp_path / "run")
    newest = sorted((tmp_path / "run" / "checkpoints").iterdir())[-1]
    (newest / "state.json").write_text("{}")
    go(make(), tmp_path / "run")
    assert equal(before, weights(tmp_path / "run"))
    notices = [line["message"] for line in read_journal(tmp_path / "run" / "log.jsonl") if line["event"] == "notice"]
    assert len(notices) == 1
    assert "skipped a damaged checkpoint" in notices[0]


def test_held_out_samples_are_judged_and_never_trained_on(make: Any, data: Path, tmp_path: Path) -> None:
    recipe = make(
        data={"kind": "cifar10", "path": str(data), "holdout": 15}, log={"samples": True, "tensorboard": False}
    )
    go(recipe, tmp_path / "run")
    (log,) = (tmp_path / "run" / "samples").iterdir()
    assert {number for line in read_journal(log) for number in line["numbers"]} == set(range(35))
    epochs = [line for line in read_journal(tmp_path / "run" / "log.jsonl") if line["event"] == "epoch"]
    assert {line["samples"] for line in epochs} == {15}


def test_any_function_serves_as_a_transform(make: Any, tmp_path: Path) -> None:
    def invert(image: Any) -> Any:
        return 255 - np.asarray(image)

    go(make(), tmp_path / "a")
    go(make(), tmp_path / "b", transform=invert)
    assert not equal(weights(tmp_path / "a"), weights(tmp_path / "b"))


def test_a_callers_own_code_gets_the_network_that_is_judged(make: Any, tmp_path: Path) -> None:
    from cruciform import train as train_network

    trained = train_network(make(ema=0.9, epochs=1), tmp_path / "run", model=network(), device="cpu")
    assert not trained.training
    kept = weights(tmp_path / "run")
    assert all(torch.equal(kept[f"ema.{name}"], tensor) for name, tensor in trained.state_dict().items())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, when it loads its compiler
def test_a_compiled_network_learns_the_same(make: Any, tmp_path: Path) -> None:
    go(make(epochs=1, train_transforms=[]), tmp_path / "plain", model=nn.Sequential(nn.Flatten(), nn.Linear(3072, 10)))
    torch.manual_seed(0)
    first = weights(tmp_path / "plain")
    model = nn.Sequential(nn.Flatten(), nn.Linear(3072, 10))
    go(make(epochs=1, train_transforms=[], compile=True), tmp_path / "compiled", model=model)
    second = weights(tmp_path / "compiled")
    assert first.keys() == second.keys()
    assert all(torch.isfinite(tensor).all() for tensor in second.values())


def test_what_is_too_old_and_can_not_be_removed_does_not_end_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cruciform.training.run.checkpoint import Checkpoints

    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(1, {"a": torch.zeros(1)}, {})

    def refuse(*given: object, **options: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.rmdir", refuse)
    checkpoints.save(2, {"a": torch.zeros(1)}, {})
    monkeypatch.undo()
    found, problems = checkpoints.load_newest()
    assert found is not None
    assert (found.step, problems) == (2, [])


def test_no_rank_writes_before_all_have_agreed_to_start(make: Any, tmp_path: Path) -> None:
    from cruciform.training.run.log_writers import SampleObserver

    observer = SampleObserver(tmp_path / "run" / "samples", rank=1)
    assert not (tmp_path / "run").exists(), "the leader would take it for somebody else's folder"
    observer.on_end("failed", 0, None)


def test_a_hang_up_is_heard_unless_nohup_was_asked_for() -> None:
    from cruciform.training.runtime.signals import Signals

    before = signal.getsignal(signal.SIGHUP)
    try:
        for handler, heard in ((signal.SIG_DFL, signal.SIGHUP), (signal.SIG_IGN, 0)):
            signal.signal(signal.SIGHUP, handler)
            with Signals() as signals:
                signal.raise_signal(signal.SIGHUP)
                assert signals.received == heard
    finally:
        signal.signal(signal.SIGHUP, before)
