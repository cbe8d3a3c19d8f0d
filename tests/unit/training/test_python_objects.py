"""What the caller's code gave to a run is named in its recipe, and nothing else is taken for it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from cruciform.api.evaluate import evaluate
from cruciform.api.train import train
from cruciform.errors import RecipeError, RunError
from cruciform.training.engine.trained_run import trained_network
from cruciform.training.recipe.cookbook import load_recipe
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.run.journal import read_journal
from cruciform.training.run.run import Run

SMALL = (
    "epochs=1",
    "batch_size=16",
    "log.tensorboard=false",
    "precision=fp32",
    "train_transforms=[]",
    "eval_transforms=[]",
)


class Mine(nn.Sequential):
    """A network that no recipe names."""

    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Linear(3072, 10))


@pytest.fixture
def recipe(data: Path) -> Recipe:
    return load_recipe("modern_cifar10", ["model.name=nin", *SMALL, f'data.path="{data}"'])


def test_the_network_of_a_caller_is_not_mistaken_for_the_recipes(recipe: Recipe, tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = train(recipe, run, model=Mine())
    assert Run(run).status()["model"] == "Mine"
    for ask in (evaluate, trained_network):
        with pytest.raises(RunError, match=r"built in Python \(Mine\).*cruciform.train\(RUN, RUN, model=...\)"):
            ask(run)
    again = train(run, run, model=Mine())
    assert all((tensor == first.state_dict()[name]).all() for name, tensor in again.state_dict().items())


@pytest.mark.parametrize(
    ("given", "later", "why"),
    [
        ({}, {}, "with its own model"),
        ({"transform": np.asarray}, {"model": Mine()}, "with its own transform"),
        ({}, {"model": nn.Flatten()}, "model.python_object was Mine, now Flatten"),
        ({}, {"model": Mine(), "transform": np.asarray}, "data.python_transform was None, now asarray"),
    ],
)
def test_a_run_goes_on_with_what_it_was_given(
    recipe: Recipe, tmp_path: Path, given: dict[str, Any], later: dict[str, Any], why: str
) -> None:
    """And where it can't, it is left as it was: done."""
    run = tmp_path / "run"
    train(recipe, run, **{"model": Mine(), **given})
    before = read_journal(run / "log.jsonl")
    with pytest.raises(RunError, match=why):
        train(run, run, **later)
    assert read_journal(run / "log.jsonl") == before


def test_a_scheme_for_a_network_of_ones_own_is_refused(recipe: Recipe, tmp_path: Path) -> None:
    converting = recipe.model_copy(update={"model": recipe.model.model_copy(update={"scheme": "lr"})})
    with pytest.raises(RecipeError, match="convert it first"):
        train(converting, tmp_path / "run", model=Mine())
    assert not (tmp_path / "run").exists()
