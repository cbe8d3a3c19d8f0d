"""A folder of images, and a run that was trained on it."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow

from cruciform.api.train import train
from cruciform.training.recipe.cookbook import load_recipe

COUNT = 23


@pytest.fixture(scope="package")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    numbers = np.random.default_rng(0)
    for split in ("train", "val"):
        for index in range(COUNT):
            path = folder / split / f"class{index % 3}" / f"{index:02d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Pillow.fromarray(numbers.integers(0, 256, (40, 36, 3), dtype=np.uint8)).save(path)
    return folder


@pytest.fixture(scope="package")
def run(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("runs") / "run"
    changes = [f'data.path="{images}"', "data.kind=folder", "data.short_side=32", "epochs=1", "batch_size=8",
               "model.options.widths=[8, 8, 8]", "log.tensorboard=false", "precision=fp32",
               'eval_transforms=[{kind="center-crop", size=32}]',
               'train_transforms=[{kind="random-crop", size=32}]']  # fmt: skip
    train(load_recipe("cifar_fast_lr_cifar10", changes), directory)
    return directory
