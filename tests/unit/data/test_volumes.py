"""MedMNIST's real files."""

import os
from pathlib import Path

import pytest

from cruciform.data.source import Opening
from cruciform.data.volumes import open_volumes


@pytest.mark.parametrize(("name", "side"), [("adrenalmnist3d.npz", 28), ("adrenalmnist3d_64.npz", 64)])
def test_masks_that_pack_well_are_no_bomb(name: str, side: int) -> None:
    folder = os.environ.get("CRUCIFORM_DATA")
    if not folder or not (Path(folder) / name).is_file():
        pytest.skip(f"{name} is not there: CRUCIFORM_DATA names no folder with it")
    source = open_volumes(Opening(Path(folder) / name, "val"))
    assert len(source) == 98
    assert source[0].image.shape == (side, side, side, 1)
    assert len(source.classes) == 2
