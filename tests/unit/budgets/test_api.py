"""From a network and a budget to a scheme for each layer."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from cruciform import convert, create_model, load
from cruciform.budgets import survey
from cruciform.budgets.budget_plan import plan_budget
from cruciform.budgets.costs import CostTable, Kind, LayerCost
from cruciform.budgets.survey import Valuation, count_network, list_candidates
from cruciform.budgets.units.cost_unit import Limit, find_unit, read_limits
from cruciform.budgets.units.unit_macs import MACS
from cruciform.budgets.units.unit_parameters import PARAMS
from cruciform.budgets.units.unit_seconds import SECONDS
from cruciform.cli.main import app
from cruciform.deployment.search.build import EngineSettings
from cruciform.deployment.search.clock import Timing
from cruciform.deployment.targets.target import TARGETS
from cruciform.errors import BudgetError, CruciformError, OptionError, UnknownNameError
from cruciform.measure.macs import profile
from cruciform.spec import ConvSpec

SIZE = (3, 32, 32)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip


def measured(networks: object, setting: object) -> dict[str, Timing]:
    return {"dense": Timing((0.1,)), "chosen": Timing((0.05,))}


@pytest.fixture
def setting() -> EngineSettings:
    return EngineSettings(TARGETS.get("onnxruntime"), SIZE, rounds=2)


@pytest.fixture(autouse=True)
def known_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times that need no engine: as many nanoseconds as MACs, but that low rank never pays in the first layer."""

    def measure(kind: Kind, schemes: object, setting: object, folder: object, *, on_progress: object) -> CostTable:
        from cruciform.schemes import make_plan

        costs = {}
        for scheme in ("full", "lr", "lr-join", "cross:full=0.5"):
            macs = make_plan(kind.spec, scheme).macs_from_input(kind.input_size[1:])
            slow = 9 if kind.spec.in_channels == 3 and scheme != "full" else 1
            costs[scheme] = LayerCost(1e-9 * macs * slow, "" if scheme == "full" else "tail")
        return CostTable(costs, {"sf": "it is too slow to be tried"})

    monkeypatch.setattr(survey, "measure_kind", measure)
    macs = profile(network(), SIZE).macs
    monkeypatch.setattr(survey, "time_network", lambda networks, setting: {"dense": Timing((1e-9 * macs,))})


def test_a_budget_of_time_is_kept_and_every_layer_has_a_reason(setting: EngineSettings, tmp_path: Path) -> None:
    plan = plan_budget(network(), setting, {SECONDS: Limit(0.6, relative=True)}, tmp_path)
    assert plan.predicted[SECONDS] <= plan.budgets[SECONDS] == 0.6 * plan.dense[SECONDS]
    assert [layer.name for layer in plan.layers] == ["0", "2", "4"]
    assert plan.layers[0].scheme == "full"
    assert "takes 3.00× the dense time here" in plan.layers[0].reason
    assert all(layer.reason for layer in plan.layers)
    converted = convert(network(), plan.mapping, input_size=SIZE)
    assert profile(converted.model, SIZE).macs == plan.predicted[MACS]
    values = [value for _, value in plan.front]
    assert values == sorted(values)
    assert values[-1] == 1
    assert plan.problems[0] == "3×3, 3 → 16 of 32×32 can't be converted to sf here: it is too slow to be tried"


def test_several_budgets_hold_together(setting: EngineSettings, tmp_path: Path) -> None:
    limits = {SECONDS: Limit(0.9, relative=True), MACS: Limit(0.5, relative=True)}
    plan = plan_budget(network(), setting, limits, tmp_path)
    assert all(plan.predicted[name] <= limit for name, limit in plan.budgets.items())


@pytest.mark.slow
def test_protected_and_important_layers_are_spared(setting: EngineSettings, tmp_path: Path) -> None:
    limits = {SECONDS: Limit(0.85, relative=True)}
    spared = plan_budget(network(), setting, limits, tmp_path, valuation=Valuation(protect=["4"]))
    assert "4" not in [layer.name for layer in spared.layers]
    for important, other in (("2", "4"), ("4", "2")):
        plan = plan_budget(
            network(), setting, {SECONDS: Limit(0.8, relative=True)}, tmp_path,
            valuation=Valuation(importances={important: 100.0}),
        )  # fmt: skip
        values = {layer.name: layer.value for layer in plan.layers}
        assert values[important] >= values[other]


def test_a_trained_network_says_itself_what_a_plan_is_worth(setting: EngineSettings, tmp_path: Path) -> None:
    model = network()
    with torch.no_grad():  # all but a cross is zero: low rank loses nothing in the last layer
        model[4].weight[:16, :, :, [0, 2]] = 0
        model[4].weight[16:, :, [0, 2]] = 0
    limits = {SECONDS: Limit(0.75, relative=True)}
    plan = plan_budget(model, setting, limits, tmp_path, valuation=Valuation(trained=True))
    last = next(layer for layer in plan.layers if layer.name == "4")
    assert (last.scheme, last.value) == ("lr", pytest.approx(1))


def test_the_least_that_is_counted_is_the_least_that_can_be_had(setting: EngineSettings, tmp_path: Path) -> None:
    valuation = Valuation(("lr",))
    least, dense = count_network(network(), setting, valuation)
    plan = plan_budget(network(), setting, {MACS: Limit(least[MACS])}, tmp_path, valuation=valuation)
    assert (plan.predicted[MACS], plan.dense[MACS]) == (least[MACS], dense[MACS])


def test_what_can_not_be_is_refused_with_the_reason(setting: EngineSettings, tmp_path: Path) -> None:
    with pytest.raises(BudgetError, match="can't be met: the cheapest choice for every layer comes to"):
        plan_budget(network(), setting, {SECONDS: Limit(0.1, relative=True)}, tmp_path)
    with pytest.raises(BudgetError, match="no layer that can be converted"):
        plan_budget(nn.Sequential(nn.Conv2d(3, 4, 1)), setting, {SECONDS: Limit(1.0)}, tmp_path)
    with pytest.raises(UnknownNameError, match=r"unknown cost unit 'watts'\. Known: .*macs"):
        plan_budget(network(), setting, {"watts": Limit(1.0)}, tmp_path)
    with pytest.raises(OptionError, match="no budget is given; limit one of .*time"):
        plan_budget(network(), setting, {}, tmp_path)


@pytest.mark.parametrize(
    ("importances", "error"),
    [({"*": 0.0}, "above 0"), ({"*": float("nan")}, "above 0"), ({"*": -1.0}, "above 0"), ({"9": 2.0}, "no layer")],
)
def test_importances_are_numbers_above_0_of_layers_that_are_there(
    setting: EngineSettings, tmp_path: Path, importances: dict[str, float], error: str
) -> None:
    with pytest.raises(OptionError, match=error):
        plan_budget(network(), setting, {MACS: Limit(0.9, relative=True)}, tmp_path,
                    valuation=Valuation(importances=importances))  # fmt: skip


def test_a_layer_that_is_not_called_stays_dense_and_is_named(setting: EngineSettings, tmp_path: Path) -> None:
    model = network()
    model[1].auxiliary = nn.Conv2d(16, 16, 3)  # for training only, as auxiliary heads are
    plan = plan_budget(model, setting, {MACS: Limit(0.9, relative=True)}, tmp_path)
    assert "1.auxiliary" not in [layer.name for layer in plan.layers]
    assert any(problem.startswith("1.auxiliary stays dense: it is not called") for problem in plan.problems)


def test_a_layer_without_candidates_says_so(
    setting: EngineSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only = lambda *words, on_progress: CostTable({"full": LayerCost(1e-3, "")}, {})  # noqa: E731
    monkeypatch.setattr(survey, "measure_kind", only)
    plan = plan_budget(network(), setting, {MACS: Limit(1.0, relative=True)}, tmp_path)
    assert {layer.reason for layer in plan.layers} == {"kept dense: no other candidate applies here"}


def test_a_network_of_the_users_own_can_be_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cruciform.budgets.network_time.time_network", measured)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mynet.py").write_text(
        "from torch import nn\n\n\ndef make():\n"
        "    return nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3))\n"
    )
    ended = CliRunner().invoke(
        app, ["budget", "mynet:make", "--input", "3x32x32", "--macs", "90%", "-o", "out"], catch_exceptions=False
    )
    assert "load it with cruciform.load('out', make())" in ended.output
    import mynet  # type: ignore[import-not-found]

    assert load("out", mynet.make())(torch.zeros(1, *SIZE)).shape == (1, 16, 28, 28)


@pytest.mark.slow
def test_the_command_writes_a_model_directory_with_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cruciform.budgets.network_time.time_network", measured)
    macs = profile(create_model("cifar_fast"), SIZE).macs
    monkeypatch.setattr(survey, "time_network", lambda networks, setting: {"dense": Timing((1e-9 * macs,))})
    out = tmp_path / "fast-60"
    ended = CliRunner().invoke(
        app, ["budget", "cifar_fast", "--budget", "60%", "--macs", "80M", "-o", str(out)], catch_exceptions=False
    )
    assert ended.exit_code == 0, ended.output
    assert "measured: 50 ms, interleaved with the dense network's 100 ms" in ended.output
    assert "| seconds | 118 ms | 70.9 ms |" in (out / "budget.md").read_text()
    assert json.loads((out / "budget.json").read_text())["predicted"]["MACs"] <= 80e6
    assert all((out / name).stat().st_size > 5000 for name in ("front.png", "layers.png"))
    assert profile(load(out), SIZE).macs == json.loads((out / "budget.json").read_text())["predicted"]["MACs"]
    (out / "notes.txt").write_text("precious")
    late = CliRunner().invoke(app, ["budget", "cifar_fast", "--budget", "60%", "-o", str(out)])
    assert "also contains notes.txt, which would be deleted" in str(late.exception)
    refused = CliRunner().invoke(app, ["budget", "cifar_fast", "--budget", "1%"])
    assert isinstance(refused.exception, BudgetError)


def test_budgets_are_read_with_their_units() -> None:
    given = [("60%", "seconds"), ("12ms", "seconds"), ("50M", "MACs"), ("8MB", "bytes"), ("1.5", "parameters")]
    assert [find_unit(unit).parse(text) for text, unit in given] == [
        Limit(0.6, relative=True), Limit(0.012), Limit(5e7), Limit(8e6), Limit(1.5),
    ]  # fmt: skip
    for text, what in (("fast", "seconds"), ("60", "seconds"), ("8MB", "seconds"), ("12ms", "MACs"), ("50M", "bytes")):
        with pytest.raises(OptionError, match=f"'{text}' is not a budget of {what}; write .0%"):
            find_unit(what).parse(text)
    assert read_limits({"time": "60%", "macs": Limit(5e7)}) == {SECONDS: Limit(0.6, relative=True), MACS: Limit(5e7)}


def test_candidates_are_all_registered_schemes_without_those_that_come_to_the_same() -> None:
    assert {"lr", "planes", "axial", "cross:full=0.5"} < set(list_candidates())
    flat = survey.distinct_schemes(ConvSpec(8, 8, 3, padding=1), list_candidates())
    assert "lr" in flat
    assert not {"planes", "cross3"} & set(flat)
    assert "planes" in survey.distinct_schemes(ConvSpec(8, 12, (3, 3, 3), padding=1), list_candidates())


def test_what_is_wrong_is_said_before_anything_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cruciform.budgets.budget_plan.survey_network", None)
    limits = {SECONDS: Limit(0.5, relative=True)}
    setting = EngineSettings(TARGETS.get("torch"), SIZE)
    for wrong, valuation, error in (
        ({}, Valuation(), "no budget is given"),
        ({"watts": Limit(1.0)}, Valuation(), "unknown cost unit 'watts'"),
        (limits, Valuation(("lrr",)), "unknown scheme 'lrr'"),
        ({MACS: Limit(0.001, relative=True)}, Valuation(), "MACs can't be met: .* allow that much, or add candidates"),
        ({**limits, PARAMS: Limit(9.0)}, Valuation(), "a budget of 9 parameters can't be met"),
    ):
        with pytest.raises(CruciformError, match=error):
            plan_budget(network(), setting, wrong, tmp_path, valuation=valuation)
