"""Inputs of a prediction: shards, a folder of images, or arrays in memory."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from cruciform.data.samples.source import Image
from cruciform.data.sets.folder import OTHER_PICTURES, SUFFIXES, read_image
from cruciform.data.sets.shards import ShardSource
from cruciform.data.sharding.shard_index import MANIFEST
from cruciform.data.sharding.storage import open_storage
from cruciform.errors import DataError
from cruciform.prediction.request import check_inputs

RANK = 3  # axes of an image in memory


class Inputs(Protocol):
    """Images by number."""

    @property
    def identity(self) -> str:
        """A checksum that changes with the inputs, without reading them all."""
        ...

    def __len__(self) -> int: ...

    def name(self, number: int) -> str:
        """Return the name of an image."""
        ...

    def image(self, number: int) -> Image:
        """Return an image, or raise ``DataError`` where it can't be read."""
        ...


def _files_below(folder: Path) -> Iterator[Path]:
    """Yield all files below a folder, following links; no folder is visited twice."""
    seen: set[tuple[int, int]] = set()

    def refuse(error: OSError) -> None:
        raise DataError(f"{error.filename} can't be listed: {error.strerror}") from error

    for here, folders, names in os.walk(folder, onerror=refuse, followlinks=True):
        stat = Path(here).stat()
        if (stat.st_dev, stat.st_ino) in seen:
            folders.clear()
            continue
        seen.add((stat.st_dev, stat.st_ino))
        yield from (Path(here, name) for name in names)


class FolderInputs:
    """All images below a folder, sorted by name, including unreadable ones."""

    def __init__(self, folder: Path, short_side: int | None) -> None:
        self._folder, self._short_side = folder, short_side
        known = SUFFIXES | OTHER_PICTURES  # unsupported formats get a row with the error
        self._names = sorted(
            path.relative_to(folder).as_posix() for path in _files_below(folder) if path.suffix.lower() in known
        )
        if not self._names:
            raise DataError(f"{folder} has no images: no file in or below it ends in {', '.join(sorted(SUFFIXES))}")

    @property
    def identity(self) -> str:
        """A checksum over names and sizes."""
        digest = hashlib.sha256()
        for name in self._names:
            try:
                size = (self._folder / name).stat().st_size
            except OSError:  # such as a dangling link, which gets a row with the error
                size = -1
            digest.update(name.encode("utf-8", "surrogateescape") + f"\0{size}\n".encode())
        return digest.hexdigest()

    def __len__(self) -> int:
        return len(self._names)

    def name(self, number: int) -> str:
        """Return its path relative to the folder; undecodable bytes are shown as �."""
        return self._names[number].encode("utf-8", "surrogateescape").decode("utf-8", "replace")

    def image(self, number: int) -> Image:
        """Decode the image."""
        return read_image(self._folder / self._names[number], self._short_side)


class ShardInputs:
    """The samples of a set of shards."""

    def __init__(self, root: str, short_side: int | None) -> None:
        storage = open_storage(root)
        self._source = ShardSource(storage, short_side=short_side)
        self.identity = hashlib.sha256(storage.read(MANIFEST)).hexdigest()

    def __len__(self) -> int:
        return len(self._source)

    def name(self, number: int) -> str:
        """Return the name that it was written with."""
        return self._source.index.name(number)

    def image(self, number: int) -> Image:
        """Read, check and decode the image."""
        return self._source[number].image


class ArrayInputs:
    """Images in memory: arrays (height, width, channels) of bytes."""

    def __init__(self, images: Sequence[Image]) -> None:
        self._images = images
        for number, image in enumerate(images):
            if getattr(image, "dtype", None) != np.uint8 or getattr(image, "ndim", None) != RANK:
                given = f"{getattr(image, 'dtype', type(image).__name__)} of shape {getattr(image, 'shape', '?')}"
                raise DataError(f"image {number} is {given}; give uint8 arrays (height, width, channels), unprocessed")

    @property
    def identity(self) -> str:
        """A checksum over all images."""
        digest = hashlib.sha256()
        for image in self._images:
            digest.update(f"{image.shape}".encode() + image.tobytes())
        return digest.hexdigest()

    def __len__(self) -> int:
        return len(self._images)

    def name(self, number: int) -> str:
        """Return the number as text."""
        return str(number)

    def image(self, number: int) -> Image:
        """Return the image."""
        return self._images[number]


def open_inputs(given: str, *, short_side: int | None) -> Inputs:
    """Open a set of shards, local or remote, or a folder."""
    check_inputs(given)
    path = Path(given)
    if "://" in given or (path / MANIFEST).is_file():
        return ShardInputs(given, short_side)
    return FolderInputs(path, short_side)
