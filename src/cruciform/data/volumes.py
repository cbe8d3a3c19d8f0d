"""Volumes in an ``.npz`` file as MedMNIST has them: ``train_images``, ``train_labels``, ``test_images``."""

import zipfile

import numpy as np

from cruciform.data.source import DATASETS, ArraySource, Opening, need_path
from cruciform.errors import DataError


@DATASETS.register("volumes")
def open_volumes(opening: Opening) -> ArraySource:
    """Reads one split into memory; grey volumes get their one channel."""
    path = need_path(opening.path, "the .npz file with the volumes", folder=False)
    try:
        with np.load(path, allow_pickle=False) as archive:
            images, labels = (archive[f"{opening.split}_{what}"] for what in ("images", "labels"))
            classes = int(max(archive[name].max() for name in archive.files if name.endswith("_labels"))) + 1
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} is not an .npz file with {opening.split}_images and _labels: {error}") from error
    if images.ndim == 4:
        images = images[..., None]
    if images.ndim != 5:
        raise DataError(f"{path} holds images of shape {images.shape[1:]}; volumes have 3 axes, and perhaps channels")
    return ArraySource(images, labels.reshape(-1).astype(np.int64), tuple(str(number) for number in range(classes)))
