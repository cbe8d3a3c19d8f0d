"""What a run was trained for is known from its checkpoint, and not believed where it can't be true."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from cruciform import convert, create_model, save
from cruciform.api.evaluate import evaluate
from cruciform.api.train import train
from cruciform.errors import CheckpointError, DataError, OptionError, RunError, ShapeError
from cruciform.reports.run_facts import read_run
from cruciform.store.directory import Base
from cruciform.training.engine.trained_run import data_of, trained_network
from cruciform.training.recipe.cookbook import load_recipe
from cruciform.training.run.checkpoint import Checkpoint
from cruciform.training.run.journal import read_journal
from cruciform.training.run.run import Run

SMALL = ("model.options.widths=[8, 8, 8]", "epochs=1", "batch_size=16", "log.tensorboard=false", "precision=fp32")


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("runs") / "small"
    train(load_recipe("cifar_fast_lr_cifar10", [*SMALL, f'data.path="{data}"']), directory)
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


def test_a_network_is_judged_by_the_recipe_of_another(data: Path, tmp_path: Path) -> None:
    """Of which only the data counts: this one has no parameters to freeze that are called so."""
    converted = convert(create_model("nin"), input_size=(3, 32, 32))
    save(converted.model, tmp_path / "model", converted.report, base=Base("nin", {"num_classes": 10}))
    changes = (*SMALL, f'data.path="{data}"')
    assert evaluate(tmp_path / "model", recipe="cifar_fast_cifar10", changes=changes).evaluation.samples == 8


def test_a_run_is_judged_by_its_own_recipe(run: Path) -> None:
    with pytest.raises(RunError, match="is evaluated on the data of its own recipe; give no other recipe"):
        evaluate(run, recipe="nin_cifar10")
    with pytest.raises(OptionError, match="nowhere: there is no such file or directory"):
        evaluate(run / "nowhere")


def test_a_converted_network_is_trained_on_other_classes_and_the_log_says_so(data: Path, tmp_path: Path) -> None:
    converted = convert(create_model("nin", num_classes=7), input_size=(3, 32, 32))
    save(converted.model, tmp_path / "model", converted.report, base=Base("nin", {"num_classes": 7}))
    changes = [*SMALL[1:], f'data.path="{data}"', f'model.name="{tmp_path / "model"}"']
    run = tmp_path / "run"
    train(load_recipe("modern_cifar10", changes), run)
    notices = [line["message"] for line in read_journal(run / "log.jsonl") if line["event"] == "notice"]
    assert any("features.cccp3_2.weight: the weights in" in what for what in notices)
    # It can't be evaluated with layers that are initialized from scratch.
    with pytest.raises(ShapeError, match="has 7 outputs, but the data has 10 classes"):
        evaluate(tmp_path / "model", recipe="modern_cifar10", changes=(f'data.path="{data}"',))


@pytest.mark.slow
def test_a_run_goes_on_when_the_directory_of_its_network_is_moved_or_written_anew(data: Path, tmp_path: Path) -> None:
    first, other = (convert(create_model(name), input_size=(3, 32, 32)) for name in ("nin", "nin_c3"))
    save(first.model, tmp_path / "model", first.report, base=Base("nin"))
    changes = [*SMALL[1:], f'data.path="{data}"', f'model.name="{tmp_path / "model"}"']
    run = tmp_path / "run"
    trained = train(load_recipe("modern_cifar10", changes), run)
    save(other.model, tmp_path / "model", other.report, base=Base("nin_c3"))
    parameters = [parameter.shape for parameter in trained.parameters()]
    assert [parameter.shape for parameter in trained_network(run).model.parameters()] == parameters
    (tmp_path / "model").rename(tmp_path / "elsewhere")
    assert evaluate(run).evaluation.samples == 8
    assert read_run(run).beginning is not None
    again = train(load_recipe(run), run)
    assert all(map(torch.equal, trained.parameters(), again.parameters()))
    # Somebody who names another one means it.
    with pytest.raises(CheckpointError):
        evaluate(run, changes=(f'model.name="{tmp_path / "elsewhere"}"',))


def test_a_run_that_never_began_keeps_the_network_of_its_last_recipe(data: Path, tmp_path: Path) -> None:
    converted = convert(create_model("nin"), input_size=(3, 32, 32))
    save(converted.model, tmp_path / "model", converted.report, base=Base("nin"))
    nowhere = load_recipe("modern_cifar10", ['data.path="nowhere"', f'model.name="{tmp_path / "model"}"'])
    with pytest.raises(DataError):
        train(nowhere, tmp_path / "run")
    (tmp_path / "model").rename(tmp_path / "elsewhere")  # as processes with another working folder do not see it
    with pytest.raises(DataError):
        train(nowhere, tmp_path / "run")
    assert Run(tmp_path / "run").network(nowhere).name == str(tmp_path / "run" / "model")
    small = load_recipe("cifar_fast_lr_cifar10", [*SMALL, f'data.path="{data}"'])
    train(small, tmp_path / "run")
    assert not (tmp_path / "run" / "model").exists()


def test_a_run_finds_its_data_where_it_was_moved_to_and_no_other(data: Path, tmp_path: Path) -> None:
    run, moved = tmp_path / "run", tmp_path / "moved"
    train(load_recipe("cifar_fast_lr_cifar10", [*SMALL, f'data.path="{data}"']), run)
    shutil.copytree(data, moved)
    train(load_recipe(run, [f'data.path="{moved}"']), run)
    assert load_recipe(run).data.path == str(moved), "and remembers it"
    batch = moved / "data_batch_5.bin"
    batch.write_bytes(batch.read_bytes()[: 7 * 3073])
    with pytest.raises(
        DataError, match=r"not what this run was trained on \(samples was 40, now 39\).*data.path set to"
    ):
        train(load_recipe(run), run)
