"""Open a data set by its kind."""

import os
from pathlib import Path

from cruciform.data.samples.source import DATASETS, ArraySource, Opening, Source
from cruciform.errors import DataError

ROOT = "CRUCIFORM_DATA"
"""Environment variable: the folder that relative paths of data sets start from."""


def open_dataset(kind: str, opening: Opening) -> Source:
    """Open one split of a data set."""
    source = DATASETS.get(kind).open_split(opening._replace(path=find_data(opening.path)))
    if opening.short_side is not None and isinstance(source, ArraySource):
        raise DataError(
            f"data.short_side={opening.short_side} can't be set: the images of {kind} have a fixed size, "
            f"{'×'.join(map(str, source.images.shape[1:-1]))}. Leave it out, or crop with train_transforms and "
            "eval_transforms"
        )
    return source


def find_data(path: str | Path) -> str | Path:
    """Return the location of a data set: relative paths start from CRUCIFORM_DATA, or from here where it is unset."""
    return path if "://" in str(path) else Path(os.environ.get(ROOT, "")) / path


def recognize_dataset(path: str) -> str:
    """Return the kind of the data set at a path or URL: the first that recognizes it, else a folder of images."""
    located = str(find_data(path))
    return next((name for name, kind in DATASETS.items() if kind.recognizes(located)), "folder")
