"""Evaluate the network of a run, or any other, on a test set."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from torch import nn

from cruciform.data.loader import Loader
from cruciform.data.open_dataset import open_dataset, recognize_dataset
from cruciform.data.order import Order
from cruciform.data.samples.source import DATASETS, Opening, Source
from cruciform.errors import DataError, RunError
from cruciform.text.wording import plural
from cruciform.training.engine.evaluation import Evaluation, evaluate
from cruciform.training.engine.learner import Learner
from cruciform.training.engine.trained_run import newest_checkpoint, restore_learner
from cruciform.training.recipe.cookbook import load_recipe, make_recipe
from cruciform.training.recipe.recipe import ModelTable, Recipe
from cruciform.training.run.run import Run
from cruciform.training.runtime.runtime import SingleProcess, pick_device
from cruciform.training.setup.recipe_data import open_datasets

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
    checkpoint = newest_checkpoint(run)
    learner = restore_learner(recipe, run, checkpoint, runtime, classes=len(test.classes))
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
