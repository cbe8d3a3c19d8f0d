"""CIFAR-10 in its binary version: a record is a label and 32×32 bytes each of red, green and blue."""

from pathlib import Path

import numpy as np

from cruciform.data.samples.source import ArraySource, Opening, dataset, need_path
from cruciform.errors import DataError

FILES = {"train": [f"data_batch_{number}.bin" for number in range(1, 6)], "test": ["test_batch.bin"]}
CLASSES = tuple("airplane automobile bird cat deer dog frog horse ship truck".split())
PLANES = (3, 32, 32)
RECORD = 1 + 3 * 32 * 32


def is_cifar10(path: str) -> bool:
    """Return whether a folder contains the test batch of CIFAR-10."""
    return all((Path(path) / name).is_file() for name in FILES["test"])


@dataset("cifar10", fixed_size=True, recognizes=is_cifar10)
def open_cifar10(opening: Opening) -> ArraySource:
    """Read one split into memory."""
    folder = need_path(opening.path, "the folder of CIFAR-10's binary version", folder=True)
    records = np.concatenate([_read(folder / name) for name in FILES[opening.split]])
    images = np.ascontiguousarray(records[:, 1:].reshape(-1, *PLANES).transpose(0, 2, 3, 1))
    return ArraySource(images, records[:, 0].astype(np.int64), CLASSES)


def _read(path: Path) -> "np.ndarray[tuple[int, int], np.dtype[np.uint8]]":
    data = np.fromfile(need_path(path, "a batch of CIFAR-10", folder=False), np.uint8)
    if not len(data) or len(data) % RECORD:
        raise DataError(f"{path} has {len(data):,} bytes, which is not a multiple of the record size {RECORD}")
    return data.reshape(-1, RECORD)
