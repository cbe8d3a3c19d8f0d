"""Judges what a run has learnt, or a model directory, on the data of its recipe."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from cruciform.data.loader import Loader, input_size
from cruciform.data.order import Order
from cruciform.errors import CheckpointError, RunError
from cruciform.sources.bounds import Bounds, bounded
from cruciform.store.directory import CARD, load
from cruciform.train.checkpoint import Checkpoint
from cruciform.train.cookbook import load_recipe
from cruciform.train.datasets import open_datasets
from cruciform.train.evaluation import Evaluation, evaluate
from cruciform.train.layout import RUN_RECIPE
from cruciform.train.learner import Learner
from cruciform.train.network import build_model
from cruciform.train.recipe import ModelTable, Recipe
from cruciform.train.run import Run
from cruciform.train.runtime import Alone, pick_device

MOST_EXTENT = 1 << 16  # of an input that a checkpoint may name


@dataclass(frozen=True)
class Judgement:
    """What was judged, and how it did.

    Attributes:
        evaluation: The figures.
        classes: The names of the classes.
        step: Of the checkpoint; None for a model directory.
    """

    evaluation: Evaluation
    classes: tuple[str, ...]
    step: int | None


def judge(
    directory: Path,
    *,
    recipe: str | None = None,
    changes: tuple[str, ...] = (),
    device: str = "auto",
    advance: Callable[[int, int], None] = lambda done, of: None,
) -> Judgement:
    """Judges a run by its newest checkpoint, or a model directory on the data of a recipe.

    Args:
        directory: The run, or the model directory.
        recipe: For a model directory: the recipe whose data it is judged on.
        changes: Changes to the recipe, as ``key=value``.
        device: What to compute on.
        advance: Told how many batches of how many are done.
    """
    run = Run(directory)
    if run.exists:
        if recipe is not None:
            raise RunError(f"{directory} is a run, and is judged on the data of its own recipe; leave out --recipe")
        made = load_recipe(directory, changes)
    elif (directory / CARD).is_file():
        if recipe is None:
            raise RunError(f"{directory} is a model directory; say which data to judge it on with --recipe NAME")
        made = load_recipe(recipe, changes)
        # What the recipe would do to the network that it trains has been done to this one, or never will be.
        optimiser = made.optimiser.model_copy(update={"rates": {}})
        untrained: dict[str, Any] = {"average": None, "lookahead": None, "freeze": {}, "optimiser": optimiser}
        made = made.model_copy(update={"model": ModelTable(name=str(directory)), **untrained})
    else:
        raise RunError(f"{directory} is neither a run nor a model directory; give what cruciform train or cruciform "
                       "convert --output has written, such as runs/nin_cifar10")  # fmt: skip
    return _judge(made, run if run.exists else None, device, advance)


class Trained(NamedTuple):
    """What a run has learnt.

    Attributes:
        model: The network, or the average of its weights where the recipe has one.
        input_size: Of one image, as it was judged.
        preparation: What is done to an image before the network sees it, as the recipe says it.
    """

    model: nn.Module
    input_size: tuple[int, ...]
    preparation: dict[str, Any]


def trained_network(directory: Path) -> Trained:
    """Returns the network of the newest checkpoint of a run, and the size of its input; the data need not be there."""
    run = Run(directory)
    recipe, checkpoint = run.recipe(), _newest(run)
    classes, size = data_of(run, checkpoint)
    learner = _restore(recipe, run, checkpoint, Alone(pick_device("cpu")), classes=classes)
    preparation = recipe.model_dump(
        mode="json", include={"prepare": True, "data": {"short_side", "whiten", "mean", "deviation"}}
    )
    return Trained(learner.evaluated(), size, preparation)


def data_of(run: Run, checkpoint: Checkpoint | None = None) -> tuple[int, tuple[int, ...]]:
    """Returns how many classes the data of a run has, and the size of an input.

    As the checkpoint says, where that can be true: a number of classes that no tensor of it has would make a network
    of any size. Otherwise the data is asked.
    """
    checkpoint = checkpoint or _newest(run)
    said = checkpoint.values.get("data")
    classes, size = (said.get("classes"), said.get("input_size")) if isinstance(said, dict) else (None, None)
    if (
        type(classes) is int
        and any(classes in tensor.shape for tensor in checkpoint.tensors.values())
        and isinstance(size, list)
        and all(type(extent) is int and 0 < extent < MOST_EXTENT for extent in size)
    ):
        return classes, tuple(size)
    recipe = run.recipe()
    _, test = open_datasets(recipe.data, Alone(pick_device("cpu")))
    return len(test.classes), input_size(test, recipe.prepare)


def _newest(run: Run) -> Checkpoint:
    checkpoint, problems = run.checkpoints().load_newest()
    if checkpoint is None:
        raise CheckpointError(f"{run.directory} has no whole checkpoint. {' '.join(problems)}")
    return checkpoint


def _restore(recipe: Recipe, run: Run, checkpoint: Checkpoint, runtime: Alone, *, classes: int) -> Learner:
    """Returns a learner as a checkpoint of a run left it."""
    bounds = Bounds.of(tensor.shape for tensor in checkpoint.tensors.values())
    what = str(run.directory / RUN_RECIPE)
    bounds.check_options(recipe.model.options, what)  # a run may be somebody else's, as a model directory may
    with bounded(bounds, what):
        model = build_model(run.network(recipe), classes=classes, seed=recipe.seed)
    learner = Learner(recipe, model, runtime, classes=classes)
    learner.load_state_(checkpoint.tensors, checkpoint.part("learner"))
    return learner


def _judge(recipe: Recipe, run: Run | None, device: str, advance: Callable[[int, int], None]) -> Judgement:
    runtime = Alone(pick_device(device))
    _, test = open_datasets(recipe.data, runtime)
    classes = len(test.classes)
    checkpoint = _newest(run) if run else None
    if run and checkpoint:
        learner = _restore(recipe, run, checkpoint, runtime, classes=classes)
    else:
        learner = Learner(recipe, load(recipe.model.name).float(), runtime, classes=classes)
    order = Order(len(test), recipe.evaluation.batch)
    loader = Loader(test, order, recipe.prepare, threads=recipe.data.threads)
    step = checkpoint.step if checkpoint else None
    return Judgement(evaluate(learner, loader, advance=advance), tuple(test.classes), step)
