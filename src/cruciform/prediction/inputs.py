"""Inputs of a prediction: a set of shards, all images below a folder, or arrays; each by number and name."""

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
        """Changes when any of them does, as far as can be told without reading them all."""
        ...

    def __len__(self) -> int: ...

    def name(self, number: int) -> str:
        """Returns what an image is called."""
        ...

    def image(self, number: int) -> Image:
        """Returns an image, or raises ``DataError`` where it can't be read."""
        ...


def _files_below(folder: Path) -> Iterator[Path]:
    """Yields all files, those in linked folders too; a folder that is reached again is not gone through again."""
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
    """All images below a folder, however deep, in the order of their names; such as can't be read among them."""

    def __init__(self, folder: Path, short_side: int | None) -> None:
        self._folder, self._short_side = folder, short_side
        known = SUFFIXES | OTHER_PICTURES  # of formats that are not read, each gets a row that says so
        self._names = sorted(
            path.relative_to(folder).as_posix() for path in _files_below(folder) if path.suffix.lower() in known
        )
        if not self._names:
            raise DataError(f"{folder} has no images: no file in or below it ends in {', '.join(sorted(SUFFIXES))}")

    @property
    def identity(self) -> str:
        """A sum over names and sizes."""
        digest = hashlib.sha256()
        for name in self._names:
            try:
                size = (self._folder / name).stat().st_size
            except OSError:  # a link to nothing, for one: it gets its row, which says so
                size = -1
            digest.update(name.encode("utf-8", "surrogateescape") + f"\0{size}\n".encode())
        return digest.hexdigest()

    def __len__(self) -> int:
        return len(self._names)

    def name(self, number: int) -> str:
        """Returns its path below the folder, as text: what of it is none is shown as �."""
        return self._names[number].encode("utf-8", "surrogateescape").decode("utf-8", "replace")

    def image(self, number: int) -> Image:
        """Decodes it."""
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
        """Returns what it was called when it was written."""
        return self._source.index.name(number)

    def image(self, number: int) -> Image:
        """Reads, checks and decodes it."""
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
    """Opens a set of shards, here or elsewhere, or a folder."""
    check_inputs(given)
    path = Path(given)
    if "://" in given or (path / MANIFEST).is_file():
        return ShardInputs(given, short_side)
    return FolderInputs(path, short_side)
