"""What the loop refuses, in words of its own, before or at its first steps."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from cruciform.errors import RecipeError, RunError, ShapeError
from cruciform.training.engine.loop import train
from cruciform.training.recipe.python_objects import PythonObjects
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.run.run import Run
from cruciform.training.runtime.runtime import SingleProcess


def go(recipe: Recipe, run: Path, *, model: nn.Module | None = None) -> None:
    model = model or nn.Sequential(nn.Flatten(), nn.Linear(3072, 10))
    train(recipe, Run(run), SingleProcess(torch.device("cpu")), inputs=PythonObjects(model=model))


def test_a_network_for_other_classes_is_refused_at_its_first_batch(make: Any, tmp_path: Path) -> None:
    for outputs in (7, 1000):
        model = nn.Sequential(nn.Flatten(), nn.Linear(3072, outputs))
        with pytest.raises(ShapeError, match=f"has {outputs} outputs, but the data has 10 classes.*num_classes=10"):
            go(make(), tmp_path / str(outputs), model=model)
        assert Run(tmp_path / str(outputs)).status()["step"] == 0


def test_means_for_other_channels_are_refused(make: Any, tmp_path: Path) -> None:
    recipe = make()
    recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"mean": (1.0, 2.0)})})
    with pytest.raises(RecipeError, match="data.mean has 2 values, but images have 3 channels"):
        go(recipe, tmp_path / "run")


def test_a_network_that_stumbles_is_told_with_its_input(make: Any, tmp_path: Path) -> None:
    """The last batch of an epoch may be of one sample, in which a batch norm of one pixel finds no variance."""
    model = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(3, 10))
    with pytest.raises(
        ShapeError, match=r"does not train on a batch of shape \(1, 3, 32, 32\): Expected more than 1 value"
    ):
        go(make(batch_size=39), tmp_path / "run", model=model)


def test_a_network_that_stumbles_when_it_is_judged_is_told_with_its_input(make: Any, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(768, 10))
    with pytest.raises(ShapeError, match=r"does not run on a batch of shape \(8, 3, 32, 32\): mat1 and mat2"):
        go(make(train_transforms=[{"kind": "random-crop", "size": 16}]), tmp_path / "run", model=model)


def test_a_file_is_no_place_for_a_run(make: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(RunError, match="is a file, or inside one; choose another directory"):
            go(make(), place)
