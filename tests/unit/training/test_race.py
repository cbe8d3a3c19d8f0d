"""Recipes against each other: who runs when, what is kept, and what is said of it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from cruciform.api.evaluate import evaluate
from cruciform.cli.main import app
from cruciform.errors import OptionError, RunError
from cruciform.plot.race import draw_race
from cruciform.training.experiments.race import Contestant, Finish, read_contestant, run_race, summarize
from cruciform.training.experiments.race_result import read_finishes, record_race
from cruciform.training.recipe.cookbook import load_recipe
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.run.journal import read_journal

SMALL = ["model.options.widths=[8, 8, 8]", "epochs=2", "batch_size=16", "log.tensorboard=false", "precision=fp32"]


def recipe(name: str, data: Path) -> Recipe:
    return load_recipe(name, [*SMALL, f'data.path="{data}"'])


@pytest.mark.slow
def test_contestants_run_in_turns_and_a_finished_one_is_not_run_again(data: Path, tmp_path: Path) -> None:
    both = [Contestant(name, recipe(f"{name}_cifar10", data)) for name in ("cifar_fast", "cifar_fast_lr3")]
    finishes = list(run_race(both, range(2), tmp_path / "runs", command="what was typed"))
    order = [(finish.name, finish.seed) for finish in finishes]
    assert order == [("cifar_fast", 0), ("cifar_fast_lr3", 0), ("cifar_fast_lr3", 1), ("cifar_fast", 1)]
    assert [point["epoch"] for point in finishes[0].curve] == [1, 2]
    assert 0 < finishes[0].curve[0]["seconds"] < finishes[0].seconds
    assert finishes[0].samples == 40
    assert finishes[1].macs < finishes[0].macs
    assert all(finish.hardware["cores"] for finish in finishes)  # a file may hold runs of several machines
    assert {finish.command for finish in finishes} == {"what was typed"}  # nor need one command have run them all
    judged = evaluate(tmp_path / "runs" / "cifar_fast-0").evaluation
    assert (judged.top1, judged.top1_flip_tta) == (finishes[0].top1, finishes[0].top1_flip_tta)

    result = tmp_path / "race.json"
    record_race(finishes, result, command="test")
    again = read_finishes(result)
    assert [finish.to_dict() for finish in again] == [finish.to_dict() for finish in finishes]
    assert not list(run_race(both, range(2), tmp_path / "elsewhere", finished=again))
    assert json.loads(result.read_text())["summary"]["cifar_fast_seeds"] == 2
    other = [Contestant("cifar_fast", both[0].recipe.model_copy(update={"epochs": 3}))]
    with pytest.raises(RunError, match="cifar_fast with seed 0 is recorded with another recipe"):
        list(run_race(other, range(1), tmp_path / "runs", finished=again))


@pytest.mark.slow
def test_the_runs_of_a_race_may_be_of_several_processes_which_it_starts_by_itself(data: Path, tmp_path: Path) -> None:
    made = recipe("cifar_fast_cifar10", data)
    options = ["--seeds", "1", "--backend", "ddp", "--workers", "2", "--runs", str(tmp_path / "runs"), "--json"]
    changes = [text for change in [*SMALL, f'data.path="{data}"'] for text in ("--set", change)]
    race = [sys.executable, "-m", "cruciform", "race", "cifar_fast_cifar10", *changes, *options]
    (finish,) = json.loads(subprocess.run(race, check=True, capture_output=True, text=True).stdout)
    assert finish["command"].endswith("--backend ddp --workers 2")
    assert len(finish["curve"]) == made.epochs
    start, *_ = read_journal(tmp_path / "runs" / "cifar_fast_cifar10-0" / "log.jsonl")
    assert start["world"] == 2

    joined = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *race[1:]]
    joined[joined.index(str(tmp_path / "runs"))] = str(tmp_path / "joined")
    done = subprocess.run(joined, check=False, capture_output=True, text=True)
    assert done.returncode
    assert "start it without torchrun" in done.stderr


@pytest.mark.parametrize("changes", [["model.name=cifar_fast_lr"], ["model.scheme=lr"]], ids=["built", "converted"])
def test_the_first_layer_of_a_race_is_fitted_to_the_data_and_stays(
    data: Path, tmp_path: Path, changes: list[str]
) -> None:
    from cruciform.nn.patch_whitening import whitening_kernel
    from cruciform.training.engine.sample_images import sample_images
    from cruciform.training.engine.trained_run import trained_network

    made = load_recipe("cifar_fast_cifar10", [*SMALL, f'data.path="{data}"', *changes])
    one = [Contestant("cifar_fast_lr", made)]
    list(run_race(one, [0], tmp_path))
    run = tmp_path / "cifar_fast_lr-0"
    fitted = whitening_kernel(torch.from_numpy(sample_images(run, 5000)), 2, regulariser=5e-4)
    assert torch.equal(trained_network(run).model.whiten.weight, fitted)


def finish(accuracy: float, *, seed: int = 0, seconds: float = 100) -> Finish:
    curve = [
        {"epoch": 1, "seconds": seconds / 2, "top1": accuracy - 0.1, "top1_flip_tta": accuracy - 0.05},
        {"epoch": 2, "seconds": seconds, "top1": accuracy, "top1_flip_tta": accuracy + 0.01},
    ]
    return Finish("x", seed, 2_000_000, 7, 50, {}, curve, {})


def test_a_summary_is_over_seeds() -> None:
    found = summarize([finish(0.90), finish(0.92, seed=1, seconds=300)])
    assert found["plain_accuracy"] == 91.0
    assert found["accuracy"] == 92.0
    assert found["accuracy_std"] == pytest.approx(1.414, abs=1e-3)
    assert found["seconds"] == 200.0
    assert found["mmacs"] == 2.0
    assert finish(0.9).images_per_second == 1.0
    assert (finish(0.9).seconds_to(0.84), finish(0.9).seconds_to(0.905), finish(0.9).seconds_to(0.92)) == (
        50,
        100,
        None,
    )


def test_the_command_draws_records_and_says_who_was_better(data: Path, tmp_path: Path) -> None:
    changes = [word for change in (*SMALL, f'data.path="{data}"') for word in ("--set", change)]
    picture, result = tmp_path / "race.png", tmp_path / "race.json"
    words = ["race", "cifar_fast_cifar10", "cifar_fast_lr3_cifar10,epochs=3", "--seeds", "1", *changes,
             "-o", str(tmp_path / "runs"), "--result", str(result), "--plot", str(picture)]  # fmt: skip
    ended = CliRunner().invoke(app, words, catch_exceptions=False)
    assert ended.exit_code == 0
    assert "cifar_fast_lr3_cifar10-epochs=3" in ended.output
    assert picture.stat().st_size > 5000
    assert len(read_finishes(result)) == 2


def test_contestants_are_called_by_what_sets_them_apart(tmp_path: Path) -> None:
    rates = [read_contestant(f"modern_cifar10,optimizer.lr={rate}", []).name for rate in ("0.05", "1.05")]
    assert rates == ["modern_cifar10-lr=0.05", "modern_cifar10-lr=1.05"]
    assert "/" not in read_contestant(f'modern_cifar10,data.path="{tmp_path}"', []).name
    words = ["race", "modern_cifar10", "modern_cifar10", "-o", str(tmp_path)]
    with pytest.raises(OptionError, match="must have different names"):
        CliRunner().invoke(app, words, catch_exceptions=False)


def test_a_picture_shows_all_contestants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr("cruciform.plot.race.save_picture", lambda figure, path: shown.extend(figure.axes[0].lines))
    draw_race({str(number): [[(1.0, 0.5), (2.0, 0.6)]] for number in range(6)}, tmp_path / "race.png")
    assert len({(line.get_color(), line.get_linestyle()) for line in shown}) == 6


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"details": [{"network": "x"}]}')
    with pytest.raises(RunError, match="is not a result file of a race"):
        read_finishes(tmp_path / "x.json")


@pytest.mark.slow
def test_runs_that_end_at_once_are_all_recorded(tmp_path: Path) -> None:
    result = tmp_path / "race.json"
    work = f"""
import sys
from pathlib import Path
from cruciform.training.experiments.race import Finish
from cruciform.training.experiments.race_result import add_finish, record_race
path = Path({str(result)!r})
for seed in range(20):
    curve = [{{"epoch": 1, "seconds": 1.0, "top1": 0.5}}]
    finish = Finish(sys.argv[1], seed, 1, 1, 1, {{}}, curve, {{}})
    add_finish(finish, path, lambda runs: record_race(runs, path, command="x"))
"""
    processes = [subprocess.Popen([sys.executable, "-c", work, name]) for name in ("one", "other")]
    assert [process.wait(60) for process in processes] == [0, 0]
    assert len({(finish.name, finish.seed) for finish in read_finishes(result)}) == len(read_finishes(result)) == 40
