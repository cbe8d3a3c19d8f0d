"""Volumes in an ``.npz`` file as MedMNIST has them: ``train_images``, ``train_labels``, ``test_images``."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cruciform.data.samples.source import DATASETS, ArraySource, Opening, need_path
from cruciform.errors import DataError

MOST_TIMES = (
    600  # that an archive may be larger unpacked: MedMNIST's masks at 64³ are 221 times, nothing but zeros 1,030
)
MOST_CLASSES = 10**6


@DATASETS.register("volumes")
def open_volumes(opening: Opening) -> ArraySource:
    """Reads one split into memory; grey volumes get their one channel."""
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
    except Exception as error:  # numpy and zipfile raise whatever they stumble over
        raise DataError(f"{path} is not an .npz file with {opening.split}_images and _labels: {error}") from error
    if classes > MOST_CLASSES:
        raise DataError(f"{path} has labels up to {classes - 1:,}; at most {MOST_CLASSES:,} classes are told apart")
    if images.dtype.kind not in "uif":
        raise DataError(f"{path} holds images of {images.dtype}, which are no numbers")
    if images.ndim == 4:
        images = images[..., None]
    if images.ndim != 5:
        raise DataError(f"{path} holds images of shape {images.shape[1:]}; volumes have 3 axes, and perhaps channels")
    return ArraySource(images, mine, tuple(str(number) for number in range(classes)))


def _refuse_bomb(path: Path) -> None:
    size = path.stat().st_size
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(entry.file_size for entry in archive.infolist())
    if unpacked > MOST_TIMES * size:
        raise DataError(f"{path} has {size:,} bytes, and {unpacked:,} unpacked: more than {MOST_TIMES} times as many")


def _whole(labels: NDArray[Any], name: str) -> NDArray[np.int64]:
    if labels.dtype.kind not in "ui":
        raise DataError(f"{name} holds {labels.dtype}; labels are whole numbers")
    return labels.reshape(-1).astype(np.int64)
