"""Images of a run's data set, preprocessed as for evaluation."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from cruciform.data.loader import Loader
from cruciform.data.order import Order
from cruciform.data.samples.source import Part, Source, Split, is_grouped, spread
from cruciform.training.engine.learner import normalize
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.run.run import Run
from cruciform.training.runtime.runtime import SingleProcess
from cruciform.training.setup.recipe_data import open_datasets


class Prepared(NamedTuple):
    """Preprocessed samples.

    Attributes:
        images: (samples, channels, …), float32.
        labels: Their class indices.
    """

    images: NDArray[Any]
    labels: NDArray[Any]


def prepared_batches(source: Path | Recipe, split: Split, *, batch: int) -> Iterator[Prepared]:
    """Yield a split of the data set of a run or a recipe, in order, preprocessed as for evaluation.

    Args:
        source: The run or the recipe.
        split: The split.
        batch: The batch size; the last batch may be smaller.
    """
    recipe = source if isinstance(source, Recipe) else Run(source).recipe()
    train, test = open_datasets(recipe.data, SingleProcess(torch.device("cpu")))
    yield from _batches(recipe, train if split == "train" else test, batch, max_bad=recipe.data.max_bad)


def sample_images(source: Path | Recipe, count: int) -> NDArray[Any]:
    """Return evenly spaced training images of a run or a recipe, preprocessed as for evaluation.

    Not the first ones: where samples are sorted by class, as in folders, those would all be of one class.
    """
    recipe = source if isinstance(source, Recipe) else Run(source).recipe()
    train, _ = open_datasets(recipe.data, SingleProcess(torch.device("cpu")))
    count = min(count, len(train))
    chosen = Part(train, spread(count, len(train)))
    return next(_batches(recipe, chosen, count, max_bad=recipe.data.max_bad)).images


def first_images(recipe: Recipe, source: Source, count: int) -> Tensor:
    """Return the first images of a source, or evenly spaced ones where it is sorted by class.

    They are preprocessed as for evaluation. Unreadable samples are skipped: training reports them.
    """
    if is_grouped(source.labels):
        source = Part(source, spread(min(count, len(source)), len(source)))
    return torch.from_numpy(next(_batches(recipe, source, count, max_bad=1.0)).images)


def _batches(recipe: Recipe, source: Source, batch: int, *, max_bad: float) -> Iterator[Prepared]:
    order = Order(len(source), min(batch, len(source)))
    loader = Loader(source, order, recipe.eval_transforms)
    mean, std = (torch.tensor(values) for values in (recipe.data.mean, recipe.data.std))
    bad = 0
    for step in range(order.steps_per_epoch):
        samples = loader.read(step)
        bad += len(samples.bad)
        if bad > max_bad * len(source):
            raise samples.bad[-1]
        images = normalize(samples.images[: samples.counted].float(), mean, std)
        yield Prepared(images.contiguous().numpy(), samples.labels[: samples.counted].numpy())
