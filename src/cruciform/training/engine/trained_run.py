"""The trained network of a run, from its newest checkpoint."""

from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from cruciform.data.loader import input_size
from cruciform.errors import CheckpointError
from cruciform.sources.bounds import Bounds, bounded
from cruciform.store.directory import Base
from cruciform.store.interface import Interface, read_interface
from cruciform.store.run_marker import RUN_RECIPE
from cruciform.training.engine.learner import Learner
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.run.checkpoint import Checkpoint
from cruciform.training.run.progress import read_progress
from cruciform.training.run.run import Run
from cruciform.training.runtime.runtime import SingleProcess, pick_device
from cruciform.training.setup.recipe_data import open_datasets
from cruciform.training.setup.recipe_network import build_model, network_base

IMAGE_KEYS = ("short_side", "size", "whiten", "mean", "std")
"""The keys of a recipe's data table that concern images, not their location."""
MOST_EXTENT = 1 << 16  # of an input size in a checkpoint


class Trained(NamedTuple):
    """The network of a run.

    Attributes:
        model: The network, with the EMA of its weights where the recipe has one.
        input_size: Of one image.
        interface: Its preprocessing, as in the recipe, and the class names, which runs of older versions don't have.
        base: How the unconverted network is built.
    """

    model: nn.Module
    input_size: tuple[int, ...]
    interface: Interface
    base: Base


def trained_network(directory: Path) -> Trained:
    """Return the network of the newest checkpoint of a run; its data need not be available."""
    run = Run(directory)
    recipe, checkpoint = run.recipe(), newest_checkpoint(run)
    classes, size = data_of(run, checkpoint)
    learner = restore_learner(recipe, run, checkpoint, SingleProcess(pick_device("cpu")), classes=classes)
    recorded = {"preprocessing": preprocessing_of(recipe), "classes": _class_names(checkpoint, classes)}
    base = network_base(run.network(recipe), classes)
    return Trained(learner.evaluated(), size, read_interface(recorded, str(directory)), base)


def preprocessing_of(recipe: Recipe) -> dict[str, Any]:
    """Return the preprocessing of a recipe, as plain data."""
    return recipe.model_dump(mode="json", include={"eval_transforms": True, "data": set(IMAGE_KEYS)})


def _class_names(checkpoint: Checkpoint, count: int) -> Any:
    recorded = checkpoint.values.get("data")
    names = recorded.get("class_names") if isinstance(recorded, dict) else None
    return names if isinstance(names, list) and len(names) == count else None


def data_of(run: Run, checkpoint: Checkpoint | None = None) -> tuple[int, tuple[int, ...]]:
    """Return the number of classes of a run's data, and the input size.

    From the checkpoint, where it is plausible: a number of classes that is no size of any tensor could make a network
    of any size. Otherwise from the data.
    """
    checkpoint = checkpoint or newest_checkpoint(run)
    recorded = checkpoint.values.get("data")
    classes, size = (
        (recorded.get("classes"), recorded.get("input_size")) if isinstance(recorded, dict) else (None, None)
    )
    if (
        type(classes) is int
        and any(classes in tensor.shape for tensor in checkpoint.tensors.values())
        and isinstance(size, list)
        and all(type(extent) is int and 0 < extent < MOST_EXTENT for extent in size)
    ):
        return classes, tuple(size)
    recipe = run.recipe()
    _, test = open_datasets(recipe.data, SingleProcess(pick_device("cpu")))
    return len(test.classes), input_size(test, recipe.eval_transforms)


def newest_checkpoint(run: Run) -> Checkpoint:
    """Return the newest checkpoint of a run; raise where it has none."""
    checkpoint, problems = run.checkpoints().load_newest()
    if checkpoint is None:
        raise CheckpointError(f"{run.directory} has no valid checkpoint. {' '.join(problems)}")
    return checkpoint


def restore_learner(
    recipe: Recipe, run: Run, checkpoint: Checkpoint, runtime: SingleProcess, *, classes: int
) -> Learner:
    """Return the learner of a checkpoint."""
    bounds = Bounds.of(tensor.shape for tensor in checkpoint.tensors.values())
    what = str(run.directory / RUN_RECIPE)
    bounds.check_options(recipe.model.options, what)  # a run may be untrusted, as a model directory may
    table = run.network(recipe)
    if not read_progress(checkpoint).switched:
        table = table.at_start()
    with bounded(bounds, what):
        model = build_model(table, classes=classes, seed=recipe.seed)
    learner = Learner(recipe, model, runtime, classes=classes)
    learner.load_state_(checkpoint.tensors, checkpoint.part("learner"))
    return learner
