"""A deploy target and a cost unit of another package: one file each, found by their entry points."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import cruciform
from cruciform.budgets import survey
from cruciform.budgets.costs import CostTable, Kind, LayerCost
from cruciform.budgets.units.cost_unit import COST_UNITS
from cruciform.deployment.search.clock import Timing
from cruciform.deployment.targets.target import TARGETS
from cruciform.schemes import make_plan

TARGET = """
from cruciform.deployment.targets.eager import Eager

class Mine(Eager):
    '''PyTorch under another name.'''

    def __init__(self):
        super().__init__(compiled=False)
        self.name = "mine"

mine = Mine()
"""
UNIT = """
from cruciform.budgets.units.cost_unit import CostUnit

filters = CostUnit(
    name="filters",
    option="filters",
    of_layer=lambda plan, run: sum(group.filters for stage in plan.stages for group in stage.groups),
    of_network=lambda run: 72.0,
    suffixes={"": 1.0},
    examples="50% or 100",
    factor=1.0,
    symbol="filters",
)
"""
SIZE = (3, 16, 16)

Install = Callable[[str, str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Put a package on the path as pip does: one file of code, and the metadata of its entry point."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    registries: tuple[Any, ...] = TARGETS, COST_UNITS
    for registry in registries:
        registry.names()  # imports what registers itself, which happens once in a process
    before = [(registry, dict(registry._items), registry._is_complete) for registry in registries]
    monkeypatch.delitem(sys.modules, "added_by_tests", raising=False)

    def put(code: str, group: str, entry: str) -> None:
        (folder / "added_by_tests.py").write_text(code)
        info = folder / "added_by_tests-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: added-by-tests\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{group}]\n{entry} = added_by_tests:{entry}\n")
        for registry in registries:
            registry._is_complete = False  # as in a program that has just started

    yield put
    for registry, items, complete in before:
        registry._items, registry._is_complete = items, complete


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4),
    ).eval()  # fmt: skip


def test_a_target_is_one_file(install: Install, tmp_path: Path) -> None:
    install(TARGET, "cruciform.targets", "mine")
    assert "mine" in TARGETS.names()
    model = cruciform.convert(network(), "lr", input_size=SIZE).model
    options = cruciform.DeployOptions(rounds=1, search_seconds=0)
    artifact = cruciform.deploy(model, tmp_path / "out", target="mine", input_size=SIZE, options=options)
    assert artifact.target == "mine"
    images = np.random.default_rng(0).normal(size=(2, *SIZE)).astype(np.float32)
    with torch.no_grad():
        expected = model.eval()(torch.from_numpy(images)).numpy()
    assert np.allclose(cruciform.open_artifact(tmp_path / "out", trust=True)(images), expected, atol=1e-5)


def test_a_cost_unit_is_one_file(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install(UNIT, "cruciform.cost_units", "filters")

    def measure(kind: Kind, schemes: list[str], *words: object, on_progress: object) -> CostTable:
        macs = {scheme: make_plan(kind.spec, scheme).macs_from_input(kind.input_size[1:]) for scheme in schemes}
        return CostTable({scheme: LayerCost(1e-9 * n, "tail" * (scheme != "full")) for scheme, n in macs.items()}, {})

    times = {"dense": Timing((1e-3,)), "chosen": Timing((5e-4,))}
    monkeypatch.setattr(survey, "measure_kind", measure)
    monkeypatch.setattr(survey, "time_network", lambda networks, setting: times)
    monkeypatch.setattr("cruciform.budgets.network_time.time_network", lambda networks, setting: times)
    options = cruciform.BudgetOptions(candidates=["full", "lr-join", "cross:width=0.5,join"])
    limits = {"filters": "100", "macs": "60%"}
    result = cruciform.budget(network(), limits, target="torch", input_size=SIZE, options=options)
    assert result.plan.predicted["filters"] <= 100
    assert result.plan.predicted["MACs"] <= 0.6 * result.plan.dense["MACs"]
    assert "filters: 72 filters dense, 100 filters allowed" in str(result)
    assert "<table>" in result._repr_html_()
    with pytest.raises(cruciform.CruciformError, match="'10ms' is not a budget of filters; write 50% or 100"):
        cruciform.budget(network(), {"filters": "10ms"}, input_size=SIZE)
