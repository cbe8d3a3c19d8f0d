"""A data set as small as CIFAR-10's files allow, 40 images to train on and 8 to test, and a recipe for it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cruciform.api.train import train
from cruciform.training.recipe.cookbook import load_recipe
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.tables.table import read_table


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cifar")
    numbers = np.random.default_rng(0)
    for name in (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"):
        records = numbers.integers(0, 256, (8, 3073), dtype=np.uint8)
        records[:, 0] %= 10
        (folder / f"{name}.bin").write_bytes(records.tobytes())
    return folder


@pytest.fixture(scope="session")
def dense(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has trained a small dense network; tests read it and leave it as it is."""
    directory = tmp_path_factory.mktemp("runs") / "dense"
    small = ("model.options.widths=[8, 8, 8]", "epochs=1", "log.tensorboard=false", "precision=fp32")
    train(load_recipe("cifar_fast_cifar10", [*small, f'data.path="{data}"']), directory)
    return directory


@pytest.fixture
def make(data: Path) -> Any:
    def recipe(**changes: Any) -> Recipe:
        base = {
            "model": {"name": "the test's own"},
            "data": {"kind": "cifar10", "path": str(data), "threads": 1},
            "train_transforms": [{"kind": "hflip"}],
            "optimizer": {"kind": "sgd", "lr": 0.01},
            "epochs": 3,
            "batch_size": 16,
            "log": {"tensorboard": False, "steps": 1},
        }
        return read_table(Recipe, {**base, **changes}, "test")

    return recipe
