"""Judges what a run has learnt, or a model directory, on the data of its recipe."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from cruciform.data.loader import Loader, input_size
from cruciform.data.open_dataset import find_data, open_dataset
from cruciform.data.order import Order
from cruciform.data.samples.source import Opening
from cruciform.data.sets.cifar10 import FILES as CIFAR
from cruciform.data.sets.folder import NAMES as SPLITS
from cruciform.data.sharding.shard_index import MANIFEST
from cruciform.errors import CheckpointError, DataError, RunError
from cruciform.sources.bounds import Bounds, bounded
from cruciform.store.directory import CARD, Base, interface_of, load
from cruciform.store.interface import Interface, read_interface
from cruciform.store.recognize import describe_path
from cruciform.store.run_marker import RUN_RECIPE
from cruciform.training.engine.evaluation import Evaluation, evaluate
from cruciform.training.engine.learner import Learner
from cruciform.training.recipe.cookbook import load_recipe, make_recipe
from cruciform.training.recipe.recipe import ModelTable, Recipe
from cruciform.training.run.checkpoint import Checkpoint
from cruciform.training.run.run import Run
from cruciform.training.runtime.runtime import SingleProcess, pick_device
from cruciform.training.setup.recipe_data import open_datasets
from cruciform.training.setup.recipe_network import build_model, network_base

OF_IMAGES = ("short_side", "size", "whiten", "mean", "deviation")
"""What a recipe's table of data says of images, and not of where they are stored."""
ONE_SIZE = ("cifar10", "volumes")
"""Kinds of data whose images have one size, which nothing is brought to."""
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
    data: str | None = None,
    changes: tuple[str, ...] = (),
    device: str = "auto",
    advance: Callable[[int, int], None] = lambda done, of: None,
) -> Judgement:
    """Judges a run by its newest checkpoint, or a model directory on the data of a recipe.

    Args:
        directory: The run, or the model directory.
        recipe: For a model directory: the recipe whose data it is evaluated on.
        data: For a model directory that says how images are preprocessed: the data to evaluate it on. CIFAR-10's
            binary batches, a folder with ``val/CLASS/*.jpg``, shards below ``val``, or an .npz file of volumes.
        changes: Changes to the recipe, as ``key=value``.
        device: What to compute on.
        advance: Told how many batches of how many are done.
    """
    run = Run(directory)
    if run.exists:
        if recipe is not None or data is not None:
            raise RunError(f"{directory} is a run, and is judged on the data of its own recipe; leave out --recipe and "
                           "--data; for other data of the same kind, change data.path with --set")  # fmt: skip
        made = load_recipe(directory, changes)
    elif (directory / CARD).is_file():
        made = _recipe_for(directory, recipe, data, changes)
        # What the recipe would do to the network that it trains has been done to this one, or never will be.
        optimizer = made.optimizer.model_copy(update={"rates": {}})
        untrained: dict[str, Any] = {"average": None, "lookahead": None, "freeze": {}, "optimizer": optimizer}
        made = made.model_copy(update={"model": ModelTable(name=str(directory)), **untrained})
    else:
        raise RunError(f"{describe_path(directory)} It is neither a run nor a model directory; give what cruciform "
                       "train or cruciform convert --output has written, such as runs/nin_cifar10")  # fmt: skip
    return _judge(made, run if run.exists else None, device, advance)


def _recipe_for(directory: Path, recipe: str | None, data: str | None, changes: tuple[str, ...]) -> Recipe:
    """Returns a recipe with the data to evaluate a model directory on, and its own preprocessing."""
    if (recipe is None) == (data is None):
        raise RunError(
            f"{directory} is a model directory; name the data to evaluate it on: --data PATH (images are preprocessed "
            "as its model.json says), or --recipe NAME (the data and the preprocessing of a recipe)"
        )
    if recipe is not None:
        return load_recipe(recipe, changes)
    own = interface_of(directory).preprocessing
    if own is None:
        raise RunError(f"{directory / CARD} does not say how images are preprocessed; evaluate it with --recipe NAME, "
                       "whose preprocessing is used")  # fmt: skip
    kind = _kind_of(str(data))
    images = {**own["data"], "short_side": None} if kind in ONE_SIZE else own["data"]
    table = {"kind": kind, "path": data, **{key: value for key, value in images.items() if value is not None}}
    untrained = {"epochs": 1, "batch": 1, "optimizer": {"kind": "sgd", "rate": 0.1}}
    made = {"model": {"name": str(directory)}, "data": table, "prepare": own["prepare"], **untrained}
    return make_recipe(made, changes, str(directory / CARD))


def _kind_of(data: str) -> str:
    path = Path(find_data(data))
    if "://" in data or any((path / name / MANIFEST).is_file() for name in SPLITS["test"]):
        return "shards"
    if path.suffix == ".npz":
        return "volumes"
    return "cifar10" if all((path / name).is_file() for name in CIFAR["test"]) else "folder"


class Trained(NamedTuple):
    """What a run has learnt.

    Attributes:
        model: The network, or the average of its weights where the recipe has one.
        input_size: Of one image, as it was judged.
        interface: What is done to an image before the network sees it, as the recipe says it, and the names of the
            classes; runs of older versions do not hold those.
        base: How the unconverted network is built again.
    """

    model: nn.Module
    input_size: tuple[int, ...]
    interface: Interface
    base: Base


def trained_network(directory: Path) -> Trained:
    """Returns the network of the newest checkpoint of a run, and the size of its input; the data need not be there."""
    run = Run(directory)
    recipe, checkpoint = run.recipe(), _newest(run)
    classes, size = data_of(run, checkpoint)
    learner = _restore(recipe, run, checkpoint, SingleProcess(pick_device("cpu")), classes=classes)
    said = {"preprocessing": preprocessing_of(recipe), "classes": _class_names(checkpoint, classes)}
    base = network_base(run.network(recipe), classes)
    return Trained(learner.evaluated(), size, read_interface(said, str(directory)), base)


def preprocessing_of(recipe: Recipe) -> dict[str, Any]:
    """Returns what a recipe does to an image before the network sees it, as plain data."""
    return recipe.model_dump(mode="json", include={"prepare": True, "data": set(OF_IMAGES)})


def _class_names(checkpoint: Checkpoint, count: int) -> Any:
    said = checkpoint.values.get("data")
    names = said.get("class_names") if isinstance(said, dict) else None
    return names if isinstance(names, list) and len(names) == count else None


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
    _, test = open_datasets(recipe.data, SingleProcess(pick_device("cpu")))
    return len(test.classes), input_size(test, recipe.prepare)


def _newest(run: Run) -> Checkpoint:
    checkpoint, problems = run.checkpoints().load_newest()
    if checkpoint is None:
        raise CheckpointError(f"{run.directory} has no whole checkpoint. {' '.join(problems)}")
    return checkpoint


def _restore(recipe: Recipe, run: Run, checkpoint: Checkpoint, runtime: SingleProcess, *, classes: int) -> Learner:
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
    runtime = SingleProcess(pick_device(device))
    table = recipe.data
    if run or table.whiten or table.holdout:
        _, test = open_datasets(table, runtime)
    else:  # a model directory need not have been trained here
        test = open_dataset(table.kind, Opening(table.path, "test", table.short_side))
        _check_class_names(Path(recipe.model.name), test.classes)
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


def _check_class_names(directory: Path, classes: Sequence[str]) -> None:
    """Raises where data has other classes than a network, or the same in another order: labels would be wrong."""
    own = interface_of(directory).classes
    if own is None or own == tuple(classes):
        return
    pairs = zip_longest(own, classes)
    number, (expected, found) = next((place, pair) for place, pair in enumerate(pairs) if pair[0] != pair[1])
    raise DataError(
        f"the data has other classes than {directory}: class {number} of {len(own)} is {expected!r} there, and of "
        f"{len(classes)} is {found!r} in the data; name and order them as model.json does"
    )
