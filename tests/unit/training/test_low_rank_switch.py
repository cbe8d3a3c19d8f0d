"""A run that starts dense and becomes low-rank on the way: killed anywhere, it ends with the same bits."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import cruciform
from cruciform.conversion.convert import converted_plans
from cruciform.data.loader import Batch
from cruciform.errors import CheckpointError, OptionError, RecipeError, RunError
from cruciform.reports.run_facts import read_run
from cruciform.training.engine import run_state
from cruciform.training.engine.learner import Learner, Outcome, StepResult
from cruciform.training.engine.loop import train
from cruciform.training.engine.low_rank_switch import find_switch, optimizer_state
from cruciform.training.engine.trained_run import trained_network
from cruciform.training.recipe.python_objects import PythonObjects
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.run.checkpoint import Checkpoint
from cruciform.training.run.journal import read_journal
from cruciform.training.run.observer import Observer, StepRecord
from cruciform.training.run.progress import read_progress
from cruciform.training.run.run import Run
from cruciform.training.runtime.runtime import SingleProcess

SWITCH = 4
"""Steps of the dense network, of 6; an epoch has 3."""
MODEL = {"name": "cifar_fast", "options": {"widths": [6], "schemes": [["full", "full"]], "input_size": 16}}
CROP = [{"kind": "center-crop", "size": 16}]
LOW_RANK = {"scheme": "lr-join", "low_rank_after": 0.6}
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "ema": {"ema": 0.9},
    "lookahead": {"lookahead": {"k": 2}, "optimizer": {"kind": "adamw", "lr": 0.01}, "freeze": {"*norms.0.bias": 0.2}},
    "shapes": {"scheme": "cross:full=0.25", "ema": 0.9},
    "at an epoch's end": {"low_rank_after": 0.5, "ema": 0.9},
}


class KilledError(Exception):
    """What a kill is in these tests."""


class KillAt(Observer):
    """Kills a run at an event of a step."""

    def __init__(self, event: str, step: int, time: int = 1) -> None:
        self.event, self.step, self.left = event, step, time

    def _meet(self, event: str, step: int) -> None:
        if (event, step) == (self.event, self.step):
            self.left -= 1
            if not self.left:
                raise KilledError

    def on_step(self, record: StepRecord) -> None:
        self._meet("step", record.step)

    def on_low_rank(self, step: int, figures: dict[str, Any]) -> None:
        self._meet("low_rank", step)

    def on_checkpoint(self, step: int, path: Path | None, figures: dict[str, Any]) -> None:
        self._meet("checkpoint", step)


KILLS = {
    "before": ("step", SWITCH - 1),
    "when the dense network is saved for the last time": ("checkpoint", SWITCH),
    "between the fit and its checkpoint": ("low_rank", SWITCH),
    "when the low-rank network is saved for the first time": ("checkpoint", SWITCH, 2),
    "after": ("step", SWITCH + 1),
}


@pytest.fixture
def switching(make: Any) -> Callable[..., Recipe]:
    """A recipe that switches; keys of the model and others."""

    def recipe(**changes: Any) -> Recipe:
        model = {**MODEL, **LOW_RANK, **{key: changes.pop(key) for key in (*LOW_RANK, "name") if key in changes}}
        base = {"optimizer": {"kind": "sgd", "lr": 0.05, "momentum": 0.9}, "checkpoint": {"steps": 1}, "epochs": 2}
        found: Recipe = make(model=model, train_transforms=CROP, eval_transforms=CROP, **{**base, **changes})
        return found

    return recipe


def go(recipe: Recipe, run: Path, *observers: Observer) -> nn.Module:
    runtime = SingleProcess(torch.device("cpu"))
    return train(recipe, Run(run), runtime, resume=True, observers=observers).evaluated()


def kill(recipe: Recipe, run: Path, *event: Any) -> None:
    with pytest.raises(KilledError):
        go(recipe, run, KillAt(*event))


def newest(run: Path) -> Checkpoint:
    checkpoint, problems = Run(run).checkpoints().load_newest()
    assert checkpoint is not None
    assert not problems
    return checkpoint


def events(run: Path, kind: str) -> list[dict[str, Any]]:
    timed = ("time", "seconds", "seconds_training", "fit_seconds")
    lines = [line for line in read_journal(run / "log.jsonl") if line["event"] == kind]
    return [{key: value for key, value in line.items() if key not in timed} for line in lines]


def assert_equal(a: Path, b: Path) -> None:
    one, other = newest(a), newest(b)
    assert one.tensors.keys() == other.tensors.keys()
    assert [name for name, tensor in one.tensors.items() if not torch.equal(tensor, other.tensors[name])] == []
    for kind in ("epoch", "low_rank"):
        assert events(a, kind) == events(b, kind)


@pytest.fixture(scope="session")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Recipe], Path]:
    """Each case run once, from its start to its end."""
    folder = tmp_path_factory.mktemp("unbroken")

    def run(case: str, recipe: Recipe) -> Path:
        if not (folder / case).exists():
            go(recipe, folder / case)
        return folder / case

    return run


@pytest.mark.parametrize(("case", "moment"), [*product(["ema"], KILLS), *product(["plain"], list(KILLS)[::2])])
def test_a_run_killed_at_any_moment_ends_with_the_same_bits(
    switching: Any, unbroken: Any, tmp_path: Path, case: str, moment: str
) -> None:
    recipe = switching(**CASES[case])
    whole = unbroken(case, recipe)
    kill(recipe, tmp_path / "run", *KILLS[moment])
    go(recipe, tmp_path / "run")
    assert_equal(whole, tmp_path / "run")
    assert len(events(tmp_path / "run", "low_rank")) == 1, "it is in the log once, however often it was made"


@pytest.mark.slow
@pytest.mark.parametrize("case", ["lookahead", "shapes", "at an epoch's end"])
def test_a_run_killed_again_and_again_ends_with_the_same_bits(
    switching: Any, unbroken: Any, tmp_path: Path, case: str
) -> None:
    recipe = switching(**CASES[case])
    step = 3 if case == "at an epoch's end" else SWITCH
    for event in (("step", step - 1), ("step", step), ("low_rank", step), ("checkpoint", step), ("step", step + 1)):
        kill(recipe, tmp_path / "run", *event)
    go(recipe, tmp_path / "run")
    assert_equal(unbroken(case, recipe), tmp_path / "run")


def test_until_the_switch_it_is_the_run_of_the_dense_recipe(switching: Any, tmp_path: Path) -> None:
    kill(switching(ema=0.9), tmp_path / "run", "checkpoint", SWITCH)
    kill(switching(ema=0.9, scheme=None, low_rank_after=None), tmp_path / "dense", "checkpoint", SWITCH)
    assert_equal(tmp_path / "run", tmp_path / "dense")


def test_a_checkpoint_that_forgets_the_switch_can_not_be_resumed(
    switching: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: what the tests above would see if the phase were not restored."""
    kill(switching(), tmp_path / "run", *KILLS["after"])
    monkeypatch.setattr(run_state, "read_progress", lambda found: replace(read_progress(found), switched=False))
    with pytest.raises(CheckpointError, match="does not fit the network"):
        go(switching(), tmp_path / "run")


def test_the_state_after_the_switch(switching: Any, tmp_path: Path) -> None:
    kill(switching(ema=0.9), tmp_path / "run", "checkpoint", SWITCH)
    dense = newest(tmp_path / "run")
    kill(switching(ema=0.9), tmp_path / "run", "checkpoint", SWITCH)
    low_rank = newest(tmp_path / "run")
    assert (dense.step, low_rank.step) == (SWITCH, SWITCH)
    momentum = "optimizer.momentum_buffer."
    for name in ("head.weight", "blocks.block1.norms.0.weight", "blocks.block1.norms.1.bias", "whiten.bias"):
        assert dense.tensors[momentum + name].any()
        assert torch.equal(low_rank.tensors[momentum + name], dense.tensors[momentum + name])
    kernels = [name for name in low_rank.tensors if name.startswith(momentum) and ".convs." in name]
    assert kernels
    assert not any(low_rank.tensors[name].any() for name in kernels), "new kernels start without momentum"
    weights = {name[6:]: tensor for name, tensor in low_rank.tensors.items() if name.startswith("model.")}
    assert any(".convs." in name for name in weights)
    assert all(torch.equal(low_rank.tensors[f"ema.{name}"], tensor) for name, tensor in weights.items())
    assert low_rank.part("learner")["ema_updates"] == 0


def test_an_optimizer_state_of_other_shapes_starts_again_as_a_whole() -> None:
    same, old, new = torch.ones(2), torch.ones(3, 3), torch.ones(4)
    by_rows = {"optimizer.step.b": torch.tensor(3.0), "optimizer.rows.a": torch.ones(3), "model.a": old}
    assert optimizer_state(by_rows, {"a": old, "b": same}, {"a": new, "b": same}) == {}
    scalar = {"optimizer.step.a": torch.tensor(3.0), "optimizer.step.b": torch.tensor(2.0)}
    found = optimizer_state(scalar, {"a": old, "b": same}, {"a": new, "b": same})
    assert found == {"optimizer.step.a": torch.tensor(0.0), "optimizer.step.b": torch.tensor(2.0)}


def test_the_log_says_what_was_done(switching: Any, unbroken: Any) -> None:
    run = unbroken("shapes", switching(**CASES["shapes"]))
    (switch,) = events(run, "low_rank")
    assert switch["step"] == SWITCH
    assert [layer["name"] for layer in switch["layers"]] == [f"blocks.block1.convs.{index}" for index in (0, 1)]
    errors = [layer["relative_error"] for layer in switch["layers"]]
    assert all(0 < error < 1 for error in errors)
    assert switch["mean_relative_error"] == pytest.approx(sum(errors) / 2)
    assert switch["dense"] == {"whiten": "protected"}
    assert switch["fitted_to_weights"] == switch["fixed_order"] == {}
    assert switch["reordered"]
    messages = [line["message"] for line in events(run, "notice")]
    assert "is dense for 4 steps, then 2 convolutions of 3 will be converted by cross:full=0.25" in messages[0]
    assert "is low-rank from here: 2 layers, fitted to the dense outputs with a mean relative error" in messages[1]
    assert "whiten stays dense: protected" in messages[1]


def test_what_a_run_is_asked_for_is_its_network_of_now(switching: Any, tmp_path: Path) -> None:
    recipe, run = switching(), tmp_path / "run"
    kill(recipe, run, *KILLS["before"])
    dense = cruciform.create_model(MODEL["name"], **MODEL["options"])
    assert not converted_plans(trained_network(run).model)
    assert cruciform.profile(run).macs == cruciform.profile(dense, (3, 16, 16)).macs
    before = cruciform.evaluate(run)
    assert before.step == SWITCH - 2
    model = go(recipe, run)
    low_rank = cruciform.convert(dense, "lr-join", protect=["whiten"], input_size=(3, 16, 16))
    assert cruciform.profile(run).macs == low_rank.report.macs_after < low_rank.report.macs_before
    images = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        torch.testing.assert_close(trained_network(run).model.eval()(images), model(images))
    epoch = events(run, "epoch")[-1]
    assert cruciform.evaluate(run).evaluation.loss == pytest.approx(epoch["loss"])
    about = read_run(run).about
    assert about == "the initial weights of the dense network that the run started with (seed 0)"
    assert cruciform.open_network(run).model.state_dict().keys() == model.state_dict().keys()


def test_a_rollback_to_the_dense_network_switches_again(
    switching: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, honest, failed = tmp_path / "run", Learner.step, []

    def step(self: Learner, batch: Batch, number: int, factor: float, **more: Any) -> StepResult:
        if number == SWITCH + 1 and not failed:
            failed.append(number)
            for path in (run / "checkpoints").glob("step-*"):
                if int(path.name[-8:]) >= SWITCH:
                    shutil.rmtree(path)
            return StepResult(float("nan"), float("nan"), Outcome.FAILED)
        return honest(self, batch, number, factor, **more)

    monkeypatch.setattr(Learner, "step", step)
    model = go(switching(nan_policy="rollback", checkpoint={"steps": 1, "keep": 9}), run)
    assert [line["step"] for line in events(run, "low_rank")] == [SWITCH, SWITCH + 2]
    assert len(converted_plans(model)) == 2
    assert read_progress(newest(run)).switched


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"low_rank_after": 1.5}, r"model.low_rank_after: 1.5 must be more than 0 and less than 1.* such as 0.3"),
        ({"low_rank_after": 0.0}, r"0 must be more than 0"),
        ({"scheme": None}, r"low_rank_after=0.6 needs the scheme .* not scheme=none: set model.scheme"),
        ({"scheme": "full"}, r"not scheme=full"),
    ],
)
def test_a_recipe_that_can_not_switch_is_refused(switching: Any, change: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        switching(**change)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"low_rank_after": 0.95}, RecipeError, r"leaves none of 6 steps.* 0.833 or less, or train for more epochs"),
        ({"freeze": {"*convs.0.weight": 0.5}}, RecipeError, r"in the network after model.low_rank_after: freeze: .*"),
    ],
)
def test_what_would_fail_at_the_switch_is_refused_before_the_first_step(
    switching: Any, tmp_path: Path, change: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        go(switching(**change), tmp_path / "run")
    assert not Run(tmp_path / "run").has_begun


def test_a_model_directory_is_refused(switching: Any, dense: Path, tmp_path: Path) -> None:
    opened = cruciform.open_network(dense)
    directory = cruciform.save(opened.model, tmp_path / "kept", cruciform.plan_conversion(opened, "full"), base=opened)
    recipe = switching(name=str(directory))
    recipe = recipe.model_copy(update={"model": recipe.model.model_copy(update={"options": {}})})
    with pytest.raises(OptionError, match=r"is a model directory with trained weights: compress it instead"):
        go(recipe, tmp_path / "run")


def test_a_network_from_python_is_refused(switching: Any, tmp_path: Path) -> None:
    runtime = SingleProcess(torch.device("cpu"))
    with pytest.raises(RecipeError, match="a network passed as model= is trained as it is"):
        train(switching(), Run(tmp_path / "run"), runtime, inputs=PythonObjects(model=nn.Linear(1, 1)))


def test_several_processes_are_refused(switching: Any) -> None:
    runtime = SingleProcess(torch.device("cpu"))
    runtime.world = 2
    with pytest.raises(RunError, match="is not available with 2 processes.* Train in one process, or set"):
        find_switch(switching(), 9, runtime)


def test_the_switch_is_where_freeze_would_be(switching: Any) -> None:
    find = partial(find_switch, runtime=SingleProcess(torch.device("cpu")))
    for fraction, steps in ((0.55, 100), (0.1, 30), (1 / 3, 9), (0.3, 1000), (0.001, 10), (0.7, 10)):
        switch = find(switching(low_rank_after=fraction), steps)
        assert switch is not None
        assert switch.step / steps >= fraction > (switch.step - 1) / steps
    assert find(switching(scheme=None, low_rank_after=None), 9) is None
