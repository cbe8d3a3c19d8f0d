"""Opens a data set by its kind. A new kind is imported here, which registers it."""

import os
from pathlib import Path

from cruciform.data import cifar10, folder, shards, volumes  # noqa: F401
from cruciform.data.source import DATASETS, Opening, Source

ROOT = "CRUCIFORM_DATA"
"""Environment variable: the folder that data sets are looked for in when their path is relative."""


def open_dataset(kind: str, opening: Opening) -> Source:
    """Opens one split of a data set."""
    return DATASETS.get(kind)(opening._replace(path=find_data(opening.path)))


def find_data(path: str | Path) -> str | Path:
    """Returns where a data set lies: relative paths count from ``CRUCIFORM_DATA``, or from here where it is unset."""
    return path if "://" in str(path) else Path(os.environ.get(ROOT, "")) / path
