"""A source: samples of one split of a data set, found by number, always the same ones in the same order."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cruciform.errors import BadSampleError, DataError
from cruciform.registry import Registry

Image = NDArray[Any]
"""Channels last, as images lie in files: (height, width, channels), or (depth, height, width, channels)."""

Split = Literal["train", "test"]


class Sample(NamedTuple):
    """An image and the number of its class."""

    image: Image
    label: int


class Source(Protocol):
    """Samples by number."""

    @property
    def classes(self) -> Sequence[str]:
        """The names of the classes; labels are positions in it."""
        ...

    @property
    def labels(self) -> NDArray[np.integer[Any]]:
        """The class of every sample, known without reading it."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Sample: ...

    def describe(self, index: int) -> str:
        """Returns where a sample lies, for people who look for it."""
        ...

    def digest(self, index: int) -> str:
        """Returns a hash of a sample as it is stored, not as it is decoded, and of its label.

        Raises:
            BadSampleError: The sample can't be read or used.
        """
        ...


@dataclass(frozen=True)
class ArraySource:
    """Samples that lie in memory, or in a file mapped into it.

    Attributes:
        images: All images, (samples, …, channels).
        labels: Their classes.
        classes: The names of the classes.
    """

    images: Image
    labels: NDArray[np.int64]
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.images) != len(self.labels):
            raise DataError(f"there are {len(self.images)} images, but {len(self.labels)} labels")
        wrong = (self.labels < 0) | (self.labels >= len(self.classes))
        if wrong.any():
            index = int(np.argmax(wrong))
            raise DataError(
                f"sample {index} has the label {self.labels[index]}, but there are {len(self.classes)} classes"
            )

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Sample:
        image = self.images[index]
        if not is_finite(image):
            raise BadSampleError(index, self.describe(index), NOT_FINITE)
        return Sample(image, int(self.labels[index]))

    def describe(self, index: int) -> str:
        """Returns its number."""
        return f"sample {index}"

    def digest(self, index: int) -> str:
        """Returns a hash of its values, their shape and type, and its label."""
        image, label = self[index]
        return digest_of(f"{image.dtype.str} {image.shape} ".encode() + image.tobytes(), label)


@dataclass(frozen=True)
class Part:
    """Some samples of a source."""

    whole: Source
    numbers: Sequence[int]

    @property
    def classes(self) -> Sequence[str]:
        """The names of the classes."""
        return self.whole.classes

    @property
    def labels(self) -> NDArray[np.integer[Any]]:
        """Their classes."""
        return np.asarray(self.whole.labels[np.asarray(self.numbers)])

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> Sample:
        return self.whole[self.numbers[index]]

    def describe(self, index: int) -> str:
        """Returns where it lies in the whole."""
        return self.whole.describe(self.numbers[index])

    def digest(self, index: int) -> str:
        """Returns what the whole says of it."""
        return self.whole.digest(self.numbers[index])


NOT_FINITE = "holds NaN, Inf or a value beyond float32"


def is_finite(image: Image) -> bool:
    """Tells whether all values of an image are finite in float32, which networks are given. Bytes always are."""
    if image.dtype.kind != "f":
        return True
    with np.errstate(over="ignore"):
        return bool(np.isfinite(image.astype(np.float32, copy=False)).all())


def digest_of(data: bytes, label: int) -> str:
    """Returns 64 bits, as text, that tell a sample of the same place in another data set from this one."""
    return hashlib.blake2b(data, digest_size=8, key=b"%d" % label).hexdigest()


def spread(count: int, samples: int) -> list[int]:
    """Returns so many numbers of samples, evenly apart: of all classes also where one lies behind the other."""
    return [(2 * number + 1) * samples // (2 * count) for number in range(count)]


def is_grouped(labels: NDArray[np.integer[Any]]) -> bool:
    """Tells whether each class lies in one piece, as in folders, so that neighbors say little of the whole."""
    return int(np.count_nonzero(labels[1:] != labels[:-1])) < len(np.unique(labels))


class Opening(NamedTuple):
    """What a data set is opened with.

    Attributes:
        path: Where it lies; an address such as ``https://…`` for kinds that can be read from elsewhere.
        split: Which samples.
        short_side: Length that the shorter side of images is brought to, where they have any size; None: as they are.
    """

    path: str | Path
    split: Split
    short_side: int | None = None


DATASETS: Registry[Callable[[Opening], Source]] = Registry("kind of data set")
"""Kinds of data sets by name. A kind registers itself; ``cruciform.data.open_dataset`` knows the files."""


def need_path(given: str | Path, what: str, *, folder: bool) -> Path:
    """Returns the path where it exists, or raises with what to type."""
    path = Path(given)
    if path.is_dir() if folder else path.is_file():
        return path
    raise DataError(
        f"{what} is not there: {path.absolute()}. Set CRUCIFORM_DATA to the folder that holds it, or name it with "
        "--set data.path=PATH"
    )
