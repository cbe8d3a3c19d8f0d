"""The directory of a run: whose it is, how it is started, and its log."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from cruciform.errors import DataError, RunError
from cruciform.training.engine.loop import train
from cruciform.training.recipe.python_objects import PythonObjects, name_objects
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.run.journal import Journal, read_journal
from cruciform.training.run.run import Run
from cruciform.training.runtime.runtime import SingleProcess


def inputs() -> PythonObjects:
    return PythonObjects(model=nn.Sequential(nn.Flatten(), nn.Linear(3072, 10)))


def go(recipe: Recipe, run: Path, *, resume: bool = True) -> None:
    train(recipe, Run(run), SingleProcess(torch.device("cpu")), resume=resume, inputs=inputs())


def test_a_run_is_written_by_one_process_only(make: Any, tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    with run.locked(), pytest.raises(RunError, match="is being written by process"):
        go(make(), tmp_path / "run")
    go(make(), tmp_path / "run")


def test_a_run_is_not_mixed_up_with_another(make: Any, tmp_path: Path) -> None:
    go(make(), tmp_path / "run")
    with pytest.raises(RunError, match="already contains a run; resume it"):
        go(make(), tmp_path / "run", resume=False)
    with pytest.raises(RunError, match="another recipe .batch_size was 16, now 8; optimizer.lr was 0.01, now 0.5"):
        go(make(batch_size=8, optimizer={"kind": "sgd", "lr": 0.5}), tmp_path / "run")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("precious")
    with pytest.raises(RunError, match="exists and is not a run"):
        go(make(), tmp_path / "mine")


def test_a_run_may_be_watched_kept_and_forgiven_otherwise(make: Any, tmp_path: Path) -> None:
    """What errors advise to change must be something that the run then takes, and whoever reads its recipe gets."""
    go(make(), tmp_path / "run")
    data = make().data.model_dump() | {"max_bad": 0.1, "threads": 2}
    changed = make(log={"steps": 7, "tensorboard": False}, checkpoint={"keep": 1}, nan_policy="skip", data=data)
    go(changed, tmp_path / "run")
    assert Run(tmp_path / "run").recipe() == name_objects(changed, inputs())


def test_missing_data_is_said_before_anything_is_computed(make: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        go(make(data={"kind": "cifar10", "path": str(tmp_path / "absent")}), tmp_path / "run")
    assert Run(tmp_path / "run").status()["state"] == "failed"


def test_a_start_without_data_does_not_use_up_the_name_of_the_run(make: Any, tmp_path: Path) -> None:
    lost = make(data={"kind": "cifar10", "path": str(tmp_path / "nowhere")})
    found = make(epochs=1)
    for recipe, error in ((lost, DataError), (found, None), (found, RunError)):
        with pytest.raises(error) if error else nullcontext():
            go(recipe, tmp_path / "run", resume=False)
    assert Run(tmp_path / "run").recipe() == name_objects(found, inputs())
    assert Run(tmp_path / "run").status()["state"] == "done"


def test_a_start_that_was_killed_while_it_wrote_the_recipe_can_be_made_again(make: Any, tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.directory.mkdir()
    (run.directory / ".part-recipe.json").write_text("{")
    run.prepare(make(), resume=True)
    assert run.exists
    assert not list(run.directory.glob(".part-*"))


def test_a_torn_line_is_passed_over_and_what_was_taken_back_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    journal = Journal(path)
    journal.write("start", step=0)
    journal.write("step", step=5)
    journal.write("step", step=9)
    journal.close()
    with path.open("ab") as file:
        file.write(b'{"event": "st')
    journal = Journal(path)
    journal.write("start", step=5)
    journal.write("step", step=6)
    journal.close()
    assert [(line["event"], line["step"]) for line in read_journal(path)] == [
        ("start", 0), ("step", 5), ("start", 5), ("step", 6),
    ]  # fmt: skip
    assert all(json.loads(line) for line in path.read_text().splitlines() if not line.endswith('"st'))


def test_an_epoch_that_was_judged_twice_counts_once(tmp_path: Path) -> None:
    """Stopped while it was judged, gone on with, and killed after the line but before the checkpoint."""
    journal = Journal(tmp_path / "log.jsonl")
    for seconds in (7.0, 8.0):
        journal.write("start", step=4)
        journal.write("epoch", step=4, epoch=1, seconds_training=seconds)
    journal.write("epoch", step=8, epoch=2, seconds_training=9.0)
    journal.close()
    lines = [line for line in read_journal(tmp_path / "log.jsonl") if line["event"] == "epoch"]
    assert [(line["epoch"], line["seconds_training"]) for line in lines] == [(1, 8.0), (2, 9.0)]
