"""Evaluate the network of a run, or any other, on a test set; open the network of a run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from cruciform.data.loader import Loader, input_size
from cruciform.data.open_dataset import open_dataset, recognize_dataset
from cruciform.data.order import Order
from cruciform.data.samples.source import DATASETS, Opening, Source
from cruciform.errors import CheckpointError, DataError, RunError
from cruciform.sources.bounds import Bounds, bounded
from cruciform.store.directory import Base
from cruciform.store.interface import Interface, read_interface
from cruciform.store.run_marker import RUN_RECIPE
from cruciform.text.wording import plural
from cruciform.training.engine.evaluation import Evaluation, evaluate
from cruciform.training.engine.learner import Learner
from cruciform.training.recipe.cookbook import load_recipe, make_recipe
from cruciform.training.recipe.recipe import ModelTable, Recipe
from cruciform.training.run.checkpoint import Checkpoint
from cruciform.training.run.run import Run
from cruciform.training.runtime.runtime import SingleProcess, pick_device
from cruciform.training.setup.recipe_data import open_datasets
from cruciform.training.setup.recipe_network import build_model, network_base

IMAGE_KEYS = ("short_side", "size", "whiten", "mean", "std")
"""The keys of a recipe's data table that concern images, not their location."""
MOST_EXTENT = 1 << 16  # of an input size in a checkpoint
OnProgress = Callable[[int, int], None]


@dataclass(frozen=True)
class EvaluationReport:
    """The metrics of a network, with class names.

    Attributes:
        network: The run, or what names the network.
        evaluation: The metrics.
        classes: The class names.
        step: Of the checkpoint; None where it is not a run.
    """

    network: str
    evaluation: Evaluation
    classes: tuple[str, ...]
    step: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
        found = self.evaluation
        return {
            "directory": self.network,
            "step": self.step,
            **found.summary(),
            "notices": found.notices,
            "per_class": dict(zip(self.classes, found.per_class(), strict=True)),
            "confusion": found.confusion,
        }

    def __str__(self) -> str:
        found = self.evaluation
        flip_tta = f" ({found.top1_flip_tta:.2%} with flip TTA)" if found.top1_flip_tta is not None else ""
        auc = f", AUC {found.auc:.4f}" if found.auc is not None else ""
        after = f" after step {self.step:,}" if self.step is not None else ""
        return (
            f"top-1 accuracy {found.top1:.2%}{flip_tta}, top-5 accuracy {found.top5:.2%}{auc}, loss {found.loss:.4f} "
            f"on {plural(found.samples, 'sample')}{after}"
        )


def evaluate_run(
    directory: Path,
    *,
    changes: Sequence[str] = (),
    device: str = "auto",
    on_progress: OnProgress = lambda done, of: None,
) -> EvaluationReport:
    """Evaluate the newest checkpoint of a run on every sample of its test set.

    Args:
        directory: The run.
        changes: Overrides of its recipe, as ``key=value``.
        device: The device.
        on_progress: Called with the number of batches done, and of all.
    """
    run, recipe = Run(directory), load_recipe(directory, changes)
    runtime = SingleProcess(pick_device(device))
    _, test = open_datasets(recipe.data, runtime)
    checkpoint = _newest(run)
    learner = _restore(recipe, run, checkpoint, runtime, classes=len(test.classes))
    return EvaluationReport(
        str(directory), _evaluate(recipe, learner, test, on_progress), tuple(test.classes), checkpoint.step
    )


def evaluate_network(
    model: nn.Module,
    recipe: Recipe,
    *,
    name: str,
    classes: Sequence[str] | None = None,
    device: str = "auto",
    on_progress: OnProgress = lambda done, of: None,
) -> EvaluationReport:
    """Evaluate a network on the test set of a recipe.

    Args:
        model: The network; it is changed to float32 and evaluation mode.
        recipe: With the data and the preprocessing; what it says about training is ignored.
        name: Of the network, for messages.
        classes: The class names of its outputs, which the data must have; None: not known.
        device: The device.
        on_progress: Called with the number of batches done, and of all.
    """
    optimizer = recipe.optimizer.model_copy(update={"lr_mult": {}})
    untrained: dict[str, Any] = {"ema": None, "lookahead": None, "freeze": {}, "optimizer": optimizer}
    recipe = recipe.model_copy(update={"model": ModelTable(name=name), **untrained})
    runtime, table = SingleProcess(pick_device(device)), recipe.data
    if table.whiten or table.holdout:
        _, test = open_datasets(table, runtime)
    else:  # the training set need not be available
        test = open_dataset(table.kind, Opening(table.path, "test", table.short_side))
        _check_class_names(name, classes, test.classes)
    learner = Learner(recipe, model.float(), runtime, classes=len(test.classes))
    return EvaluationReport(name, _evaluate(recipe, learner, test, on_progress), tuple(test.classes))


def recipe_for_data(name: str, data: str, preprocessing: Mapping[str, Any] | None, changes: Sequence[str]) -> Recipe:
    """Return a recipe to evaluate a network with: data at a path, and the network's own preprocessing.

    Args:
        name: Of the network, for messages.
        data: CIFAR-10's binary version, a folder with ``val/CLASS/*.jpg``, shards in ``val``, or an .npz file of
            volumes; or a data set of another kind that recognizes the path.
        preprocessing: Of the network; None: not known.
        changes: Overrides, as ``key=value``.
    """
    if preprocessing is None:
        raise RunError(f"the preprocessing of {name} is not known; give a recipe, whose preprocessing is used")
    kind = recognize_dataset(data)
    images = dict(preprocessing["data"])
    if DATASETS.get(kind).fixed_size:
        images["short_side"] = None
    table = {"kind": kind, "path": data, **{key: value for key, value in images.items() if value is not None}}
    untrained = {"epochs": 1, "batch_size": 1, "optimizer": {"kind": "sgd", "lr": 0.1}}
    made = {"model": {"name": name}, "data": table, "eval_transforms": preprocessing["eval_transforms"], **untrained}
    return make_recipe(made, changes, f"the preprocessing of {name}")


def _evaluate(recipe: Recipe, learner: Learner, test: Source, on_progress: OnProgress) -> Evaluation:
    order = Order(len(test), recipe.evaluation.batch_size)
    loader = Loader(test, order, recipe.eval_transforms, threads=recipe.data.threads)
    return evaluate(learner, loader, on_progress=on_progress)


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
    recipe, checkpoint = run.recipe(), _newest(run)
    classes, size = data_of(run, checkpoint)
    learner = _restore(recipe, run, checkpoint, SingleProcess(pick_device("cpu")), classes=classes)
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
    checkpoint = checkpoint or _newest(run)
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


def _newest(run: Run) -> Checkpoint:
    checkpoint, problems = run.checkpoints().load_newest()
    if checkpoint is None:
        raise CheckpointError(f"{run.directory} has no valid checkpoint. {' '.join(problems)}")
    return checkpoint


def _restore(recipe: Recipe, run: Run, checkpoint: Checkpoint, runtime: SingleProcess, *, classes: int) -> Learner:
    """Return the learner of a checkpoint."""
    bounds = Bounds.of(tensor.shape for tensor in checkpoint.tensors.values())
    what = str(run.directory / RUN_RECIPE)
    bounds.check_options(recipe.model.options, what)  # a run may be untrusted, as a model directory may
    with bounded(bounds, what):
        model = build_model(run.network(recipe), classes=classes, seed=recipe.seed)
    learner = Learner(recipe, model, runtime, classes=classes)
    learner.load_state_(checkpoint.tensors, checkpoint.part("learner"))
    return learner


def _check_class_names(name: str, own: Sequence[str] | None, classes: Sequence[str]) -> None:
    """Raise where the data has other classes than the network, or another order: labels would be wrong."""
    if own is None or tuple(own) == tuple(classes):
        return
    pairs = zip_longest(own, classes)
    number, (expected, found) = next((place, pair) for place, pair in enumerate(pairs) if pair[0] != pair[1])
    raise DataError(
        f"the data has other classes than {name}: class {number} of {len(own)} of the network is {expected!r}, but "
        f"class {number} of {len(classes)} of the data is {found!r}; name and order the data's classes as the network's"
    )
