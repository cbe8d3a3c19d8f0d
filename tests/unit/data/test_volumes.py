"""MedMNIST's real files."""

import os
from pathlib import Path

import numpy as np
import pytest

from cruciform.data.open_dataset import open_dataset
from cruciform.data.samples.source import Opening
from cruciform.data.sets.volumes import open_volumes
from cruciform.errors import DataError


@pytest.mark.parametrize(("name", "side"), [("adrenalmnist3d.npz", 28), ("adrenalmnist3d_64.npz", 64)])
def test_masks_that_pack_well_are_no_bomb(name: str, side: int) -> None:
    folder = os.environ.get("CRUCIFORM_DATA")
    if not folder or not (Path(folder) / name).is_file():
        pytest.skip(f"{name} is not there: CRUCIFORM_DATA names no folder with it")
    source = open_volumes(Opening(Path(folder) / name, "val"))
    assert len(source) == 98
    assert source[0].image.shape == (side, side, side, 1)
    assert len(source.classes) == 2


def test_images_of_one_size_refuse_to_be_brought_to_another(tmp_path: Path) -> None:
    images, labels = np.zeros((4, 8, 8, 8), np.uint8), np.array([[0], [1], [0], [1]])
    np.savez(tmp_path / "volumes.npz", train_images=images, train_labels=labels)
    with pytest.raises(DataError, match=r"short_side=16 can't be set: the images of volumes have a fixed size, 8×8×8"):
        open_dataset("volumes", Opening(tmp_path / "volumes.npz", "train", short_side=16))
