"""Sweeps: what is tried, what survives an interruption, and what is refused."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cruciform.cli.main import app
from cruciform.errors import OptionError, RecipeError, RunError
from cruciform.training.experiments.sweep import Search, Sweep, run_sweep
from cruciform.training.recipe.cookbook import load_recipe
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.run.run import Run, find_runs

SMALL = ["model.options.widths=[8, 8, 8]", "epochs=1", "batch_size=16", "log.tensorboard=false", "precision=fp32"]


def sweep(data: Path, folder: Path, *, trials: int, holdout: int = 8) -> Sweep:
    def load(more: Sequence[str]) -> Recipe:
        return load_recipe("cifar_fast_lr_cifar10", [*SMALL, f'data.path="{data}"', f"data.holdout={holdout}", *more])

    searches = [Search.read("optimizer.lr=0.01..1:log"), Search.read("loss.label_smoothing=0.1,0.2")]
    return Sweep(load, searches, trials, folder)


def test_trials_differ_and_are_kept(data: Path, tmp_path: Path) -> None:
    first = list(run_sweep(sweep(data, tmp_path, trials=2)))
    assert [trial.number for trial in first] == [0, 1]
    assert all(0.01 <= trial.settings["optimizer.lr"] <= 1 for trial in first)
    assert all(trial.settings["loss.label_smoothing"] in ("0.1", "0.2") for trial in first)
    assert all(trial.top1 is not None for trial in first)
    more = list(run_sweep(sweep(data, tmp_path, trials=3)))
    assert more[:2] == first, "what has ended is not run again"
    assert len({trial.settings["optimizer.lr"] for trial in more}) == 3, "nor is it proposed again"
    recipes = [run.recipe() for run in find_runs(tmp_path)]
    assert [recipe.optimizer.lr for recipe in recipes] == [trial.settings["optimizer.lr"] for trial in more]


def test_a_trial_that_was_under_way_is_gone_on_with(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def die(*words: object) -> None:
        raise Killed

    monkeypatch.setattr("cruciform.training.experiments.sweep.train_trial", die)
    with pytest.raises(Killed):
        list(run_sweep(sweep(data, tmp_path, trials=2)))
    monkeypatch.undo()
    ended = list(run_sweep(sweep(data, tmp_path, trials=2)))
    assert [trial.number for trial in ended] == [0, 1]


def test_a_run_that_fails_is_a_trial_that_failed(data: Path, tmp_path: Path) -> None:
    made = sweep(data, tmp_path, trials=1)
    bad = Sweep(lambda more: made.load([*more, "optimizer.lr=1e30"]), made.searches, 1, tmp_path)
    (trial,) = run_sweep(bad)
    assert trial.top1 is None
    assert "is NaN or Inf" in (trial.reason or "")


@pytest.mark.parametrize("search", ["loss.label_smoothing=1.5..2.0", "optimizer.rat=0.1..0.2", "epochs=0,-1"])
def test_settings_that_no_recipe_takes_are_refused_before_anything_is_kept(
    data: Path, tmp_path: Path, search: str
) -> None:
    made = sweep(data, tmp_path, trials=1)
    with pytest.raises(RecipeError):
        list(run_sweep(Sweep(made.load, [made.searches[0], Search.read(search)], 2, tmp_path / "sweep")))
    assert not (tmp_path / "sweep").exists()


def test_keys_that_only_go_together_are_not_refused(data: Path, tmp_path: Path) -> None:
    made = sweep(data, tmp_path, trials=1)
    searches = [Search.read("optimizer.kind=sgd,adamw"), Search.read("optimizer.eps=1e-8..1e-4:log")]
    plain = Sweep(lambda more: made.load(["optimizer={kind='sgd', lr=0.01}", *more]), searches, 1, tmp_path / "sweep")
    (trial,) = run_sweep(plain)
    assert set(trial.settings) == {"optimizer.kind", "optimizer.eps"}


@pytest.mark.parametrize("search", ["model.name=cifar_fast_lr,cifar_fst", "optimizer.momentum=0.0,0.9"])
def test_settings_that_name_nothing_or_contradict_others_do_not_end_it(data: Path, tmp_path: Path, search: str) -> None:
    """Else the next start would end there, too."""
    made = sweep(data, tmp_path, trials=1)
    both = Sweep(lambda more: made.load([*more, "loss.label_smoothing=0.1"]), [Search.read(search)], 6, tmp_path)
    ended = list(run_sweep(both))
    assert {trial.top1 is None for trial in ended} == {True, False}


def test_a_run_that_somebody_else_writes_is_no_fault_of_its_settings(data: Path, tmp_path: Path) -> None:
    made = sweep(data, tmp_path, trials=1)
    with Run(tmp_path / "trial-00000").locked(), pytest.raises(RunError, match="is being written by"):
        list(run_sweep(made))
    (trial,) = run_sweep(made)
    assert trial.top1 is not None


@pytest.mark.parametrize("searches", [["data.holdout=0,8"], ["epochs=1,2", "epochs=3,4"]])
def test_what_trials_are_judged_on_is_not_searched_nor_is_a_key_twice(
    data: Path, tmp_path: Path, searches: list[str]
) -> None:
    made = sweep(data, tmp_path, trials=1)
    with pytest.raises(OptionError, match="each key once, and not data.holdout"):
        list(run_sweep(Sweep(made.load, [Search.read(one) for one in searches], 1, tmp_path)))


def test_a_folder_holds_one_sweep(data: Path, tmp_path: Path) -> None:
    made = sweep(data, tmp_path, trials=1)
    list(run_sweep(made))
    other = Sweep(lambda more: made.load([*more, "seed=3"]), made.searches, 1, tmp_path)
    with pytest.raises(RunError, match="contains another sweep .recipe.seed was 0, now 3.*choose another folder"):
        list(run_sweep(other))
    with pytest.raises(RunError, match="contains another sweep .searches was"):
        list(run_sweep(Sweep(made.load, made.searches[:1], 1, tmp_path)))
    with Run(tmp_path).locked(), pytest.raises(RunError, match="is being written by process"):
        list(run_sweep(made))


def test_choosing_by_the_test_set_is_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="must not select by accuracy on the test set"):
        list(run_sweep(sweep(data, tmp_path, trials=1, holdout=0)))


@pytest.mark.parametrize(
    "text",
    [
        "rate",
        "rate=",
        "=1..2",
        "rate=2..1",
        "rate=0..1:log",
        "rate=a..b",
        "rate=1..2:loge",
        "rate=1..inf",
        "rate=nan..1",
    ],
)
def test_searches_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match=f"{text}"):
        Search.read(text)


def test_searches_are_read() -> None:
    assert Search.read("epochs=5..20") == Search("epochs", (), 5, 20, whole=True)
    assert Search.read("rate=0.1..1:log") == Search("rate", (), 0.1, 1, log=True)
    assert Search.read("scheme=lr,lr-join") == Search("scheme", ("lr", "lr-join"))


def test_the_command_says_which_was_best(data: Path, tmp_path: Path) -> None:
    changes = [word for change in (*SMALL, f'data.path="{data}"', "data.holdout=8") for word in ("--set", change)]
    words = ["sweep", "cifar_fast_lr_cifar10", "--search", "optimizer.lr=0.1..1:log", "--trials", "2", *changes]
    ended = CliRunner().invoke(app, [*words, "-o", str(tmp_path)], catch_exceptions=False)
    assert ended.exit_code == 0
    best = ended.output.partition("the best: ")[2].replace("\n", " ")
    assert best.startswith(
        "cruciform train cifar_fast_lr_cifar10 --set 'model.options.widths=[8, 8, 8]' --set epochs=1"
    )
    assert "optimizer.lr=0." in best
    assert "holdout" not in best


def test_the_command_names_no_best_where_all_failed(data: Path, tmp_path: Path) -> None:
    changes = [word for change in (*SMALL, f'data.path="{data}"', "data.holdout=8") for word in ("--set", change)]
    words = ["sweep", "cifar_fast_lr_cifar10", "--search", "optimizer.lr=1e29..1e30", "--trials", "1", *changes]
    ended = CliRunner().invoke(app, [*words, "-o", str(tmp_path)])
    assert isinstance(ended.exception, RunError)
    assert "the best:" not in ended.output
