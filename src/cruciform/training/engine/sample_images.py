"""Images of a run's own data, as its network is given them when it is judged."""

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
    """Some samples.

    Attributes:
        images: (samples, channels, …), in 32 bits.
        labels: Their classes.
    """

    images: NDArray[Any]
    labels: NDArray[Any]


def prepared_batches(directory: Path, split: Split, *, batch: int) -> Iterator[Prepared]:
    """Yields what a run was trained on, or is judged on, in its own order, without the chances of training.

    Args:
        directory: The run.
        split: Which samples.
        batch: How many at a time; the last may be fewer.
    """
    recipe = Run(directory).recipe()
    train, test = open_datasets(recipe.data, SingleProcess(torch.device("cpu")))
    yield from _batches(recipe, train if split == "train" else test, batch, max_bad=recipe.data.max_bad)


def sample_images(directory: Path, count: int) -> NDArray[Any]:
    """Returns so many training images of a run, from all over its data, as its network is given them when judged.

    Not the first: where classes lie one after the other, as in folders, those would all be of one class.
    """
    recipe = Run(directory).recipe()
    train, _ = open_datasets(recipe.data, SingleProcess(torch.device("cpu")))
    count = min(count, len(train))
    chosen = Part(train, spread(count, len(train)))
    return next(_batches(recipe, chosen, count, max_bad=recipe.data.max_bad)).images


def first_images(recipe: Recipe, source: Source, count: int) -> Tensor:
    """Returns so many images of a source, as a recipe's network is given images when it is judged.

    The first; where each class lies in one piece, as in folders, some from all over it. Those that can't be read are
    left out: whoever trains on them tells.
    """
    if is_grouped(source.labels):
        source = Part(source, spread(min(count, len(source)), len(source)))
    return torch.from_numpy(next(_batches(recipe, source, count, max_bad=1.0)).images)


def _batches(recipe: Recipe, source: Source, batch: int, *, max_bad: float) -> Iterator[Prepared]:
    order = Order(len(source), min(batch, len(source)))
    loader = Loader(source, order, recipe.prepare)
    mean, deviation = (torch.tensor(values) for values in (recipe.data.mean, recipe.data.deviation))
    bad = 0
    for step in range(order.steps_per_epoch):
        samples = loader.read(step)
        bad += len(samples.bad)
        if bad > max_bad * len(source):
            raise samples.bad[-1]
        images = normalize(samples.images[: samples.counted].float(), mean, deviation)
        yield Prepared(images.contiguous().numpy(), samples.labels[: samples.counted].numpy())
