"""The data that a recipe names: what is trained on, and what is judged on."""

from typing import NamedTuple

from cruciform.data.open_dataset import open_dataset
from cruciform.data.samples.source import Opening, Part, Source, Split, is_grouped, spread
from cruciform.data.transforms.whitening import whiten
from cruciform.errors import DataError
from cruciform.training.recipe.recipe import DataTable
from cruciform.training.runtime.runtime import Runtime


class Datasets(NamedTuple):
    """Two sources.

    Attributes:
        train: What is trained on.
        test: What is judged on: the test set, or what the recipe holds out of the training set.
    """

    train: Source
    test: Source


def open_datasets(table: DataTable, runtime: Runtime) -> Datasets:
    """Opens both; the leading process first, so that what has to be computed once is computed once."""
    if not runtime.leads:
        runtime.wait()
    datasets = _open(table)
    if runtime.leads:
        runtime.wait()
    return datasets


def stored_datasets(table: DataTable, opened: Datasets) -> Datasets:
    """Returns data as it is stored: what was opened, or what that was whitened from.

    Whitened images differ in their last bits between machines, and are computed again where the cache is empty.
    """
    return _open(table.model_copy(update={"whiten": None})) if table.whiten else opened


def _open(table: DataTable) -> Datasets:
    def source(split: Split) -> Source:
        return open_dataset(table.kind, Opening(table.path, split, table.short_side))

    train = source("train")
    train, test = _hold_out(train, table.holdout) if table.holdout else Datasets(train, source("test"))
    if tuple(train.classes) != tuple(test.classes):
        odd = ", ".join(sorted(set(train.classes) ^ set(test.classes))[:5])
        raise DataError(f"training and test data have different classes; only one of them has: {odd}")
    if table.whiten:
        train, test = whiten(train, [test], table.whiten)
    return Datasets(train, test)


def _hold_out(source: Source, count: int) -> Datasets:
    """Returns all but the last samples, and those; where each class lies in one piece, as in folders, every k-th."""
    samples = len(source)
    if count >= samples:
        raise DataError(f"data.holdout={count} leaves nothing of {samples} training samples to train on")
    if not is_grouped(source.labels):
        first = samples - count
        return Datasets(Part(source, range(first)), Part(source, range(first, samples)))
    held = spread(count, samples)
    return Datasets(Part(source, sorted(set(range(samples)) - set(held))), Part(source, held))
