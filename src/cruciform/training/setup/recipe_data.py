"""The data sets of a recipe: one to train on, one to evaluate on."""

from typing import NamedTuple

from cruciform.data.open_dataset import open_dataset
from cruciform.data.samples.source import Opening, Part, Source, Split, is_grouped, spread
from cruciform.data.transforms.whitening import whiten
from cruciform.errors import DataError
from cruciform.training.recipe.recipe import DataTable
from cruciform.training.runtime.runtime import Runtime


class Datasets(NamedTuple):
    """The data sets of a recipe.

    Attributes:
        train: The samples to train on.
        test: The samples to evaluate on: the test set, or those held out from the training set.
    """

    train: Source
    test: Source


def open_datasets(table: DataTable, runtime: Runtime) -> Datasets:
    """Open both data sets; in the leading process first, so that caches are computed once."""
    if not runtime.leads:
        runtime.wait()
    datasets = _open(table)
    if runtime.leads:
        runtime.wait()
    return datasets


def stored_datasets(table: DataTable, opened: Datasets) -> Datasets:
    """Return the data sets before whitening.

    Whitened images differ in their last bits between machines.
    """
    return _open(table.model_copy(update={"whiten": None})) if table.whiten else opened


def _open(table: DataTable) -> Datasets:
    def source(split: Split) -> Source:
        return open_dataset(table.kind, Opening(table.path, split, table.short_side))

    train = source("train")
    train, test = _hold_out(train, table.holdout) if table.holdout else Datasets(train, source("test"))
    if tuple(train.classes) != tuple(test.classes):
        odd = ", ".join(sorted(set(train.classes) ^ set(test.classes))[:5])
        raise DataError(f"training and test data have different classes; only one of them has {odd}")
    if table.whiten:
        train, test = whiten(train, [test], table.whiten)
    return Datasets(train, test)


def _hold_out(source: Source, count: int) -> Datasets:
    """Hold out the last samples, or every k-th one where samples are sorted by class."""
    samples = len(source)
    if count >= samples:
        raise DataError(f"data.holdout={count} must be smaller than the number of training samples, {samples}")
    if not is_grouped(source.labels):
        first = samples - count
        return Datasets(Part(source, range(first)), Part(source, range(first, samples)))
    held = spread(count, samples)
    return Datasets(Part(source, sorted(set(range(samples)) - set(held))), Part(source, held))
