"""Volumes in an ``.npz`` file in MedMNIST's format: ``train_images``, ``train_labels``, ``test_images`` and so on."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cruciform.data.samples.source import ArraySource, Opening, dataset, need_path
from cruciform.errors import DataError

MOST_TIMES = 600  # compression ratio: MedMNIST's masks at 64³ reach 221, zeros alone 1,030
MOST_CLASSES = 10**6


@dataset("volumes", fixed_size=True, recognizes=lambda path: path.endswith(".npz"))
def open_volumes(opening: Opening) -> ArraySource:
    """Read one split into memory; gray volumes get a channel axis."""
    path = need_path(opening.path, "the .npz file with the volumes", folder=False)
    try:
        _refuse_bomb(path)
        with np.load(path, allow_pickle=False) as archive:
            images = archive[f"{opening.split}_images"]
            labels = {name: _whole(archive[name], name) for name in archive.files if name.endswith("_labels")}
            mine = labels[f"{opening.split}_labels"]
            classes = max(int(numbers.max(initial=-1)) for numbers in labels.values()) + 1
    except DataError:
        raise
    except Exception as error:  # numpy and zipfile raise anything
        raise DataError(f"{path} is not an .npz file with {opening.split}_images and _labels: {error}") from error
    if classes > MOST_CLASSES:
        raise DataError(f"{path} has labels up to {classes - 1:,}; the limit is {MOST_CLASSES:,} classes")
    if images.dtype.kind not in "uif":
        raise DataError(f"{path} contains images of {images.dtype}, which is not a numeric dtype")
    if images.ndim == 4:
        images = images[..., None]
    if images.ndim != 5:
        raise DataError(f"{path} contains images of shape {images.shape[1:]}; volumes have 3 axes, or 4 with channels")
    return ArraySource(images, mine, tuple(str(number) for number in range(classes)))


def _refuse_bomb(path: Path) -> None:
    size = path.stat().st_size
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(entry.file_size for entry in archive.infolist())
    if unpacked > MOST_TIMES * size:
        raise DataError(f"{path} has {size:,} bytes, but {unpacked:,} unpacked: more than {MOST_TIMES} times as many")


def _whole(labels: NDArray[Any], name: str) -> NDArray[np.int64]:
    if labels.dtype.kind not in "ui":
        raise DataError(f"{name} contains {labels.dtype}; labels must be integers")
    return labels.reshape(-1).astype(np.int64)
