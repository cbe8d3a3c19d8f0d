"""Read the log of a run and build its initial network, for a report."""

from pathlib import Path

import torch
from torch import Tensor

from cruciform.errors import DataError, first_line
from cruciform.reports.facts import RunFacts, Training
from cruciform.store.directory import CARD
from cruciform.store.trained_weights import holds_trained_weights
from cruciform.training.engine.sample_images import first_images
from cruciform.training.engine.trained_run import data_of
from cruciform.training.run.journal import read_journal
from cruciform.training.run.run import Run
from cruciform.training.runtime.runtime import SingleProcess
from cruciform.training.setup.recipe_data import open_datasets
from cruciform.training.setup.recipe_network import build_model


def read_run(directory: Path) -> RunFacts:
    """Read the log of a run, and build its initial network."""
    run = Run(directory)
    lines = read_journal(run.log)
    training = Training(
        run.status(),
        [line for line in lines if line.get("event") == "epoch"],
        [line for line in lines if line.get("event") == "step"],
    )
    recipe, (classes, _) = run.recipe(), data_of(run)

    def images(count: int) -> Tensor:
        return first_images(recipe, open_datasets(recipe.data, SingleProcess(torch.device("cpu")))[0], count)

    network = run.network(recipe).at_start()
    try:
        model = build_model(network, classes=classes, seed=recipe.seed, images=images)
    except DataError as error:
        why = f"the initial network of the run was fitted to its data, and {first_line(error)}"
        return RunFacts(training, None, why)
    whose = "the run" if recipe.model.low_rank_after is None else "the dense network that the run started with"
    about, source = f"the initial weights of {whose} (seed {recipe.seed})", Path(network.name)
    trained = holds_trained_weights(source, model) if (source / CARD).is_file() else None
    return RunFacts(training, model, about, trained)
