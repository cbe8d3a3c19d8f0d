"""Fine-tuning after the fit: a few epochs on the data of a recipe, by its labels and by the original's outputs.

Data, transforms, the objective, the batch size and the optimizer are the recipe's, which suits the network, with steps
small enough for weights that are nearly right.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from cruciform.compression.compression_stage import TUNED, CompressionStage
from cruciform.errors import OptionError
from cruciform.networks.open_network import OpenedNetwork
from cruciform.nn.inspect import checksum
from cruciform.training.engine.loop import train
from cruciform.training.recipe.cookbook import load_recipe, names_recipe
from cruciform.training.recipe.python_objects import PythonObjects
from cruciform.training.recipe.recipe import EvaluationTable, ModelTable, Recipe
from cruciform.training.recipe.schedule import Cosine
from cruciform.training.run.observer import Observer, StepRecord
from cruciform.training.run.run import Run
from cruciform.training.runtime.runtime import SingleProcess, pick_device
from cruciform.training.tables.distill_table import DistillTable

SMALLER = 0.1
"""The learning rate, as a fraction of the recipe's."""
TEACHER_WEIGHT = 0.5


def find_training_data(opened: OpenedNetwork, data: Any) -> Recipe:
    """Return the recipe whose data a network is tuned on: that of the calibration images, or of the network's run.

    Args:
        opened: The original.
        data: What the calibration images were taken from; None: the run of the network.
    """
    source = opened.reference if data is None and opened.origin == "run" else data
    if isinstance(source, str | Path) and names_recipe(source):
        return load_recipe(source)
    raise OptionError("fine-tuning needs labels: give a recipe or a run, whose training data it takes, for the images")


def finetuning_recipe(recipe: Recipe, epochs: int) -> Recipe:
    """Return a recipe for a few epochs on the same data.

    Args:
        recipe: Has the data, the transforms, the objective and the optimizer.
        epochs: How many.
    """
    return recipe.model_copy(
        update={
            "model": ModelTable(name=recipe.model.name),
            # Patterns of parameter names may not fit the new layers.
            "optimizer": recipe.optimizer.model_copy(update={"lr": SMALLER * recipe.optimizer.lr, "lr_mult": {}}),
            "schedule": Cosine(kind="cosine"),
            "distill": DistillTable(weight=TEACHER_WEIGHT),
            "epochs": epochs,
            "evaluation": EvaluationTable(batch_size=recipe.evaluation.batch_size, epochs=epochs),
            "ema": None,
            "lookahead": None,
            "freeze": {},
        }
    )


def finetune_(
    model: nn.Module,
    teacher: nn.Module,
    recipe: Recipe,
    state: Path | None,
    *,
    fitted: CompressionStage,
    judge: Callable[[nn.Module], float | None],
    on_progress: Callable[[str], None],
) -> CompressionStage:
    """Tune a network in place, or resume that; leave it as it was where the evaluation gets worse.

    Args:
        model: The fitted network.
        teacher: The original.
        recipe: As ``finetuning_recipe`` makes it.
        state: Where checkpoints are kept; None: only while it runs.
        fitted: The stage before, with its evaluation.
        judge: Returns the evaluation of a network; None where there is none.
        on_progress: Called with what is being done.
    """

    class Progress(Observer):
        def on_step(self, record: StepRecord) -> None:
            on_progress(f"fine-tuning: step {record.step}, loss {record.loss:.3f}")

    started = time.monotonic()
    place = next(model.parameters()).device
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    inputs = PythonObjects(model=model, teacher=teacher)
    with tempfile.TemporaryDirectory() as temporary:
        # Another fit is another run.
        folder = (state or Path(temporary)) / f"tuned-{checksum(before)[:16]}"
        runtime = SingleProcess(pick_device("auto"))
        train(recipe, Run(folder), runtime, resume=True, observers=[Progress()], inputs=inputs)
    model.to(place).eval()
    evaluation, seconds = judge(model), time.monotonic() - started
    kept = evaluation is None or fitted.evaluation is None or evaluation >= fitted.evaluation
    if not kept:
        model.load_state_dict(before)
    return CompressionStage(TUNED, seconds, evaluation, kept)
