"""What a run was trained for is known from its checkpoint, and not believed where it can't be true."""

import json
from pathlib import Path
from typing import Any

import pytest

from cruciform.errors import DataError
from cruciform.train.checkpoint import Checkpoint
from cruciform.train.cookbook import load_recipe
from cruciform.train.judge import data_of, trained_network
from cruciform.train.run import Run
from cruciform.train.start import train_network

SMALL = ("model.options.widths=[8, 8, 8]", "epochs=1", "batch=16", "log.tensorboard=false", "precision=fp32")


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("runs") / "small"
    train_network(load_recipe("cifar_fast_lr_cifar10", [*SMALL, f'data.path="{data}"']), directory)
    recipe = json.loads((directory / "recipe.json").read_text("utf-8"))
    recipe["data"]["path"] = "nowhere"
    (directory / "recipe.json").write_text(json.dumps(recipe))
    return directory


def test_a_trained_network_needs_no_data(run: Path) -> None:
    assert trained_network(run).input_size == (3, 32, 32)
    assert data_of(Run(run)) == (10, (3, 32, 32))


@pytest.mark.parametrize(
    "said",
    [None, [], {}, {"classes": 10}, {"classes": 10**12, "input_size": [3, 32, 32]},
     {"classes": True, "input_size": [3, 32, 32]}, {"classes": 10, "input_size": [3, -1, 10**9]}],
)  # fmt: skip
def test_where_the_checkpoint_says_nothing_sensible_the_data_is_asked(run: Path, said: Any) -> None:
    newest, _ = Run(run).checkpoints().load_newest()
    assert newest
    forged = Checkpoint(newest.step, newest.tensors, {**newest.values, "data": said}, newest.path)
    with pytest.raises(DataError, match="nowhere"):
        data_of(Run(run), forged)
