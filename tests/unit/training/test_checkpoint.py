import errno
import math
import shutil
from pathlib import Path

import pytest
import torch
from torch import nn

from cruciform import files
from cruciform.data.loader import Batch
from cruciform.errors import CheckpointError, NonFiniteError
from cruciform.training.engine.learner import Learner, Outcome
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.run.checkpoint import Checkpoints, load
from cruciform.training.runtime.runtime import SingleProcess
from cruciform.training.tables.table import read_table

TENSORS = {"model.a": torch.arange(6.0).reshape(2, 3), "model.b": torch.tensor(3)}


def save(folder: Path, *steps: int, keep: int = 2) -> Checkpoints:
    checkpoints = Checkpoints(folder, keep)
    for step in steps:
        checkpoints.save(step, TENSORS, {"progress": {"step": step}})
    return checkpoints


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    checkpoint, problems = save(tmp_path, 7).load_newest()
    assert checkpoint is not None
    assert checkpoint.step == 7
    assert not problems
    assert checkpoint.values == {"progress": {"step": 7}}
    assert all(torch.equal(checkpoint.tensors[name], tensor) for name, tensor in TENSORS.items())


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    save(tmp_path, 1, 2, 3, 4, keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000003", "step-00000004"]


@pytest.mark.parametrize("file", ["state.safetensors", "state.json", "manifest.json"])
@pytest.mark.parametrize("damage", ["flip", "truncate", "delete"])
def test_a_damaged_checkpoint_is_passed_over_and_named(tmp_path: Path, file: str, damage: str) -> None:
    checkpoints = save(tmp_path, 1, 2)
    path = tmp_path / "step-00000002" / file
    data = bytearray(path.read_bytes())
    if damage == "flip":
        place = data.index(b'"step": 2') + 8 if file == "manifest.json" else len(data) // 2
        data[place] ^= 1
        path.write_bytes(data)
    elif damage == "truncate":
        path.write_bytes(data[:-2])
    else:
        path.unlink()
    checkpoint, problems = checkpoints.load_newest()
    assert checkpoint is not None
    assert checkpoint.step == 1
    assert len(problems) == 1
    assert "step-00000002" in problems[0]


def test_without_any_there_is_none(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "absent").load_newest() == (None, [])
    with pytest.raises(CheckpointError, match="can't be read"):
        load(tmp_path)


def test_the_last_whole_one_is_never_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = save(tmp_path, 1, keep=1)
    # The new one is damaged between its rename and the retention, as by a disk that lies.
    rename = files._rename

    def rename_and_damage(part: Path, directory: Path) -> None:
        rename(part, directory)
        (directory / "state.json").write_text("{")

    monkeypatch.setattr(files, "_rename", rename_and_damage)
    checkpoints.save(2, TENSORS, {})
    checkpoint, problems = checkpoints.load_newest()
    assert checkpoint is not None
    assert checkpoint.step == 1
    assert problems


def test_a_full_disk_is_said_and_leaves_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = save(tmp_path, 1)

    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "sync", full)
    with pytest.raises(
        CheckpointError, match="of step 2 can't be written: the disk is full .*the last valid checkpoint is"
    ):
        checkpoints.save(2, TENSORS, {})
    checkpoint, problems = checkpoints.load_newest()
    assert checkpoint is not None
    assert checkpoint.step == 1
    assert not problems


def test_numbers_that_are_none_are_not_saved(tmp_path: Path) -> None:
    checkpoints = save(tmp_path, 1)
    with pytest.raises(NonFiniteError, match="model.a has NaN or Inf after step 2"):
        checkpoints.save(2, {"model.a": torch.tensor([1.0, float("nan")])}, {})
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


def test_tensors_that_share_memory_are_saved_apart(tmp_path: Path) -> None:
    shared = torch.arange(4.0)
    Checkpoints(tmp_path).save(1, {"a": shared, "b": shared, "c": shared[1:3]}, {})
    checkpoint = load(tmp_path / "step-00000001")
    assert torch.equal(checkpoint.tensors["b"], shared)
    assert torch.equal(checkpoint.tensors["c"], shared[1:3])


def recipe(**changes: object) -> Recipe:
    data = {
        "model": {"name": "the test's own"},
        "data": {"kind": "cifar10", "path": "x"},
        "optimizer": {"kind": "sgd", "lr": 0.1},
        "epochs": 1,
        "batch_size": 8,
        **changes,
    }
    return read_table(Recipe, data, "test")


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)
    )


def batch(number: int) -> Batch:
    generator = torch.Generator().manual_seed(number)
    images = torch.randint(0, 256, (8, 3, 8, 8), generator=generator, dtype=torch.uint8)
    return Batch(images, torch.arange(8), tuple(range(8)), 8, 8)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_learner_becomes_what_it_was(tmp_path: Path, optimizer: str, precision: str) -> None:
    made = recipe(
        optimizer={"kind": optimizer, "lr": 0.01, "weight_decay": 0.1},
        precision=precision,
        ema=0.9,
        lookahead={"k": 2},
    )
    first = Learner(made, network(), SingleProcess(torch.device("cpu")))
    for step in range(3):
        first.step(batch(step), step, 1.0)
    Checkpoints(tmp_path).save(3, *first.state())
    second = Learner(made, network(), SingleProcess(torch.device("cpu")))
    checkpoint = load(tmp_path / "step-00000003")
    second.load_state_(checkpoint.tensors, checkpoint.values)
    for learner in (first, second):
        for step in range(3, 6):
            learner.step(batch(step), step, 0.5)
    states = [learner.state() for learner in (first, second)]
    assert states[0][1] == states[1][1]
    for name, tensor in states[0][0].items():
        assert torch.equal(tensor, states[1][0][name]), name


def test_the_checkpoint_of_another_network_is_refused(tmp_path: Path) -> None:
    first = Learner(recipe(), network(), SingleProcess(torch.device("cpu")))
    tensors, values = first.state()
    other = Learner(recipe(), nn.Sequential(nn.Flatten(), nn.Linear(192, 10)), SingleProcess(torch.device("cpu")))
    with pytest.raises(CheckpointError, match="does not fit the network or the recipe"):
        other.load_state_(tensors, values)
    shutil.rmtree(tmp_path)


def test_a_step_in_pieces_equals_a_whole_one() -> None:
    whole, pieces = (
        Learner(
            recipe(grad_accum_steps=accumulate),
            nn.Sequential(nn.Flatten(), nn.Linear(192, 10)),
            SingleProcess(torch.device("cpu")),
        )
        for accumulate in (1, 3)
    )
    pieces.model.load_state_dict(whole.model.state_dict())
    for learner in (whole, pieces):
        learner.step(batch(0), 0, 1.0)
    for a, b in zip(whole.model.parameters(), pieces.model.parameters(), strict=True):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_first_step_that_overflows_leaves_no_state_that_nobody_filled(optimizer: str) -> None:
    """Gradients of images this bright are above 65,504, times the scale that torch starts with."""
    learner = Learner(
        recipe(
            precision="fp16",
            optimizer={"kind": optimizer, "lr": 1e-6},
            data={"kind": "cifar10", "path": "x", "std": [1.0]},
        ),
        nn.Sequential(nn.Flatten(), nn.Linear(192, 10)),
        SingleProcess(torch.device("cpu")),
    )
    result = learner.step(batch(0), 0, 1.0)
    assert not math.isfinite(result.norm)
    assert result.outcome is Outcome.OVERFLOWED
    assert not learner.optimizer.state
    norms = [learner.step(batch(0), step, 1.0).norm for step in range(1, 40)]
    assert math.isfinite(norms[-1]), "the scale falls until it fits"
    assert all(bool(torch.isfinite(parameter).all()) for parameter in learner.model.parameters())


def test_a_bad_batch_leaves_no_trace_where_it_is_skipped() -> None:
    learner = Learner(recipe(nan_policy="skip", ema=0.9), network(), SingleProcess(torch.device("cpu")))
    learner.step(batch(0), 0, 1.0)
    before, _ = learner.state()
    images = batch(1).images.float()
    images[0, 0, 0, 0] = float("nan")
    result = learner.step(batch(1)._replace(images=images), 1, 1.0)
    assert result.outcome is Outcome.FAILED
    after, _ = learner.state()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_copy_may_have_any_name_but_another_checkpoints(tmp_path: Path) -> None:
    save(tmp_path, 7)
    whole = tmp_path / "step-00000007"
    shutil.copytree(whole, tmp_path / "checkpoint_of_ray")
    assert load(tmp_path / "checkpoint_of_ray").step == 7
    shutil.copytree(whole, tmp_path / "step-00000009")
    with pytest.raises(CheckpointError, match="is not a checkpoint: its step is 7"):
        load(tmp_path / "step-00000009")
