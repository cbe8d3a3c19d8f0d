"""Opens a data set by its kind. A new kind is imported here, which registers it."""

import os
from pathlib import Path

from cruciform.data.samples.source import DATASETS, ArraySource, Opening, Source
from cruciform.data.sets import (
    cifar10,  # noqa: F401
    folder,  # noqa: F401
    shards,  # noqa: F401
    volumes,  # noqa: F401
)
from cruciform.errors import DataError

ROOT = "CRUCIFORM_DATA"
"""Environment variable: the folder that data sets are looked for in when their path is relative."""


OF_ONE_SIZE = frozenset({"cifar10", "volumes"})
"""Kinds whose images have one size, and are not brought to another."""


def open_dataset(kind: str, opening: Opening) -> Source:
    """Opens one split of a data set."""
    source = DATASETS.get(kind)(opening._replace(path=find_data(opening.path)))
    if opening.short_side is not None and isinstance(source, ArraySource):
        raise DataError(
            f"short_side={opening.short_side} brings images of any size to one; those of {kind} have one, "
            f"{'×'.join(map(str, source.images.shape[1:-1]))}. Leave short_side out, or crop with prepare and augment"
        )
    return source


def find_data(path: str | Path) -> str | Path:
    """Returns where a data set lies: relative paths count from ``CRUCIFORM_DATA``, or from here where it is unset."""
    return path if "://" in str(path) else Path(os.environ.get(ROOT, "")) / path
