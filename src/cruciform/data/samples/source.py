"""A source: the samples of one split of a data set by index, and the registry of data sets."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from cruciform.errors import BadSampleError, DataError
from cruciform.registry import Registry

Image = NDArray[Any]
"""Channels last: (height, width, channels), or (depth, height, width, channels)."""

Split = Literal["train", "test"]


class Sample(NamedTuple):
    """An image and its class index."""

    image: Image
    label: int


class Source(Protocol):
    """Samples by index, always the same ones in the same order."""

    @property
    def classes(self) -> Sequence[str]:
        """The class names; labels are indices into them."""
        ...

    @property
    def labels(self) -> NDArray[np.integer[Any]]:
        """The class index of every sample, known without reading it."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Sample: ...

    def describe(self, index: int) -> str:
        """Return the location of a sample, for messages."""
        ...

    def digest(self, index: int) -> str:
        """Return a hash of the stored bytes of a sample (not the decoded ones) and of its label.

        Raises:
            BadSampleError: The sample can't be read or used.
        """
        ...


@dataclass(frozen=True)
class ArraySource:
    """Samples in memory, or in a memory-mapped file.

    Attributes:
        images: All images, (samples, …, channels).
        labels: Their class indices.
        classes: The class names.
    """

    images: Image
    labels: NDArray[np.int64]
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.images) != len(self.labels):
            raise DataError(f"the data has {len(self.images)} images, but {len(self.labels)} labels")
        wrong = (self.labels < 0) | (self.labels >= len(self.classes))
        if wrong.any():
            index = int(np.argmax(wrong))
            raise DataError(
                f"sample {index} has the label {self.labels[index]}, but the data has {len(self.classes)} classes"
            )

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Sample:
        image = self.images[index]
        if not is_finite(image):
            raise BadSampleError(index, self.describe(index), NOT_FINITE)
        return Sample(image, int(self.labels[index]))

    def describe(self, index: int) -> str:
        """Return its index."""
        return f"sample {index}"

    def digest(self, index: int) -> str:
        """Return a hash of its values, their shape and dtype, and its label."""
        image, label = self[index]
        return digest_of(f"{image.dtype.str} {image.shape} ".encode() + image.tobytes(), label)


@dataclass(frozen=True)
class Part:
    """A subset of the samples of a source."""

    whole: Source
    numbers: Sequence[int]

    @property
    def classes(self) -> Sequence[str]:
        """The class names."""
        return self.whole.classes

    @property
    def labels(self) -> NDArray[np.integer[Any]]:
        """Their class indices."""
        return np.asarray(self.whole.labels[np.asarray(self.numbers)])

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> Sample:
        return self.whole[self.numbers[index]]

    def describe(self, index: int) -> str:
        """Return its location in the source."""
        return self.whole.describe(self.numbers[index])

    def digest(self, index: int) -> str:
        """Return its hash in the source."""
        return self.whole.digest(self.numbers[index])


NOT_FINITE = "contains NaN, Inf or a value beyond float32"


def is_finite(image: Image) -> bool:
    """Return whether all values of an image are finite in float32; integers always are."""
    if image.dtype.kind != "f":
        return True
    with np.errstate(over="ignore"):
        return bool(np.isfinite(image.astype(np.float32, copy=False)).all())


def digest_of(data: bytes, label: int) -> str:
    """Return a 64-bit hash, as text, of the bytes and the label of a sample."""
    return hashlib.blake2b(data, digest_size=8, key=b"%d" % label).hexdigest()


def spread(count: int, samples: int) -> list[int]:
    """Return ``count`` evenly spaced sample indices, which cover all classes even where samples are sorted."""
    return [(2 * number + 1) * samples // (2 * count) for number in range(count)]


def is_grouped(labels: NDArray[np.integer[Any]]) -> bool:
    """Return whether the samples are sorted by class, as in folders."""
    return int(np.count_nonzero(labels[1:] != labels[:-1])) < len(np.unique(labels))


class Opening(NamedTuple):
    """The arguments that a data set is opened with.

    Attributes:
        path: Its location; a URL such as ``https://…`` for kinds that can be read remotely.
        split: The split to open.
        short_side: Length that the shorter side of images is resized to; None: they keep their size. Only for kinds
            without a fixed size.
    """

    path: str | Path
    split: Split
    short_side: int | None = None


class DatasetKind(NamedTuple):
    """A kind of data set.

    Attributes:
        open_split: Opens one split.
        fixed_size: Whether all images have the same size, so that none is resized.
        recognizes: Returns whether a path or URL is a data set of this kind.
    """

    open_split: Callable[[Opening], Source]
    fixed_size: bool = False
    recognizes: Callable[[str], bool] = lambda path: False


DATASETS: Registry[DatasetKind] = Registry(
    "kind of data set", package="cruciform.data.sets", group="cruciform.datasets"
)
"""Kinds of data sets by name. A file in ``data/sets/``, or an entry point ``cruciform.datasets``, adds one."""

OpenFunction = TypeVar("OpenFunction", bound=Callable[[Opening], Source])


def dataset(
    name: str, *, fixed_size: bool = False, recognizes: Callable[[str], bool] = lambda path: False
) -> Callable[[OpenFunction], OpenFunction]:
    """Register the decorated function as a kind of data set.

    Args:
        name: The ``data.kind`` of recipes.
        fixed_size: Whether all images have the same size.
        recognizes: Returns whether a path or URL is a data set of this kind.
    """

    def register(function: OpenFunction) -> OpenFunction:
        DATASETS.add(name, DatasetKind(function, fixed_size, recognizes))
        return function

    return register


def need_path(path: str | Path, what: str, *, folder: bool) -> Path:
    """Return the path where it exists; raise with the fix where it does not."""
    path = Path(path)
    if path.is_dir() if folder else path.is_file():
        return path
    raise DataError(
        f"{what} does not exist: {path.absolute()}. Set the environment variable CRUCIFORM_DATA to the folder that "
        "contains it, or data.path of the recipe to its location"
    )
