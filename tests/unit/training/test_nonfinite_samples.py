"""A sample that is NaN or Inf is named, in training as in evaluation, and the learning rate is not blamed for it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from cruciform.api.evaluate import evaluate
from cruciform.errors import DataError, NonFiniteError
from cruciform.training.engine.loop import train
from cruciform.training.recipe.python_objects import PythonObjects
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.run.journal import read_journal
from cruciform.training.run.run import Run
from cruciform.training.runtime.runtime import SingleProcess
from cruciform.training.tables.table import read_table

BAD = 5


def recipe(folder: Path, *, bad: dict[str, float] | None = None, dtype: Any = np.float32, **changes: Any) -> Recipe:
    """Returns a recipe for 24 volumes to train on and 8 to test, one of which may hold a value of its own."""
    numbers = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for split, count in (("train", 24), ("test", 8)):
        images = numbers.random((count, 4, 4, 4)).astype(dtype)
        if bad and split in bad:
            images[BAD, 1, 2, 3] = bad[split]
        arrays |= {f"{split}_images": images, f"{split}_labels": np.arange(count, dtype=np.uint8) % 2}
    np.savez_compressed(folder / "volumes.npz", **arrays)
    data = {"kind": "volumes", "path": str(folder / "volumes.npz"), "std": [1.0], "threads": 0}
    table = {"model": {"name": "mine"}, "data": data | changes.pop("data", {}), "epochs": 2, "batch_size": 8,
             "optimizer": {"kind": "sgd", "lr": 0.01}, "evaluation": {"auc": True},
             "log": {"tensorboard": False, "steps": 1}, **changes}  # fmt: skip
    return read_table(Recipe, table, "test")


class Deaf(nn.Module):
    """Gives finite outputs for infinite inputs, as max pooling and a saturating activation do."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.last(torch.tanh(x.flatten(1).amax(1, keepdim=True)))
        return result


def go(made: Recipe, run: Path, model: nn.Module | None = None, transform: Any = None) -> None:
    inputs = PythonObjects(model=model or Deaf(), transform=transform)
    train(made, Run(run), SingleProcess(torch.device("cpu")), resume=True, inputs=inputs)


def notices(run: Path) -> list[str]:
    return [line["message"] for line in read_journal(run / "log.jsonl") if line["event"] == "notice"]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("split", ["train", "test"])
def test_a_sample_that_is_not_finite_is_named_and_stops_the_run(tmp_path: Path, split: str, value: float) -> None:
    with pytest.raises(DataError, match=f"sample {BAD}: contains NaN, Inf or a value beyond float32"):
        go(recipe(tmp_path, bad={split: value}), tmp_path / "run")
    (last,) = read_journal(tmp_path / "run" / "log.jsonl")[-1:]
    assert last["error"] == "DataError"
    assert "auc" not in (tmp_path / "run" / "log.jsonl").read_text()


def test_a_value_that_is_infinite_in_float32_only_is_named_too(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"sample {BAD}: contains NaN, Inf or a value beyond float32"):
        go(recipe(tmp_path, bad={"test": 1e300}, dtype=np.float64), tmp_path / "run")


def test_samples_that_are_not_finite_are_left_out_and_listed_where_that_is_allowed(tmp_path: Path) -> None:
    go(recipe(tmp_path, bad={"train": np.nan, "test": np.inf}, data={"max_bad": 0.2}), tmp_path / "run")
    told = notices(tmp_path / "run")
    assert [what.partition(":")[0] for what in told] == [
        "skipped an unreadable sample",
        *["skipped an unreadable test sample"] * 2,
    ]
    assert all(f"sample {BAD}: contains NaN" in what for what in told)


def test_a_run_goes_on_when_the_sample_has_been_mended(tmp_path: Path) -> None:
    """Its contents differ from those that the run began with; but it was never learnt from."""
    with pytest.raises(DataError):
        go(recipe(tmp_path, bad={"test": np.nan}), tmp_path / "run")
    go(recipe(tmp_path), tmp_path / "run")
    assert Run(tmp_path / "run").status()["state"] == "done"


@pytest.mark.slow
def test_an_evaluation_names_the_sample_and_gives_no_figures(tmp_path: Path) -> None:
    made = recipe(tmp_path, model={"name": "monai:ResNet18-3d", "options": {"spatial_dims": 3}})
    pytest.importorskip("monai")
    run = Run(tmp_path / "run")
    train(made.model_copy(update={"epochs": 1}), run, SingleProcess(torch.device("cpu")), resume=True)
    recipe(tmp_path, bad={"test": np.inf})
    with pytest.raises(DataError, match=f"sample {BAD}: contains NaN"):
        evaluate(run.directory, device="cpu")


def test_a_transform_that_makes_a_sample_infinite_is_blamed_and_the_sample_named(tmp_path: Path) -> None:
    def broken(image: Any) -> Any:
        return image / np.float32(0)

    with np.errstate(divide="ignore"), pytest.raises(DataError, match=r"sample \d+: the transforms give NaN or Inf"):
        go(recipe(tmp_path), tmp_path / "run", transform=broken)


def test_a_deviation_that_makes_samples_infinite_is_blamed_and_not_the_learning_rate(tmp_path: Path) -> None:
    made = recipe(tmp_path, data={"std": [1e-45]})
    with pytest.raises(NonFiniteError, match=r"data.std=\(1e-45,\) gives NaN or Inf for 8 samples.*sample") as error:
        go(made, tmp_path / "run", nn.Sequential(nn.Flatten(), nn.Linear(64, 2)))
    assert "optimizer.lr" not in str(error.value)


def test_outputs_that_are_not_finite_are_no_result(tmp_path: Path) -> None:
    class Broken(Deaf):
        def forward(self, x: Tensor) -> Tensor:
            result = super().forward(x)
            return result if self.training else result.index_fill(0, torch.tensor(BAD), float("nan"))

    with pytest.raises(NonFiniteError, match=f"outputs for 1 of 8 samples are NaN or Inf.*the first: sample {BAD}"):
        go(recipe(tmp_path), tmp_path / "run", Broken())


def test_whitening_names_a_sample_that_is_not_finite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRUCIFORM_CACHE", str(tmp_path / "cache"))
    with pytest.raises(DataError, match=f"sample {BAD}: contains NaN"):
        go(recipe(tmp_path, bad={"train": np.nan}, data={"whiten": {}}), tmp_path / "run")
