"""Times that are counted instead of measured: engines take minutes to build."""

from collections.abc import Mapping

import pytest
from torch import nn

import cruciform
from cruciform.budgets import plan_clock, survey
from cruciform.budgets.costs import CostTable, Kind, LayerCost
from cruciform.deployment.search.build import EngineSettings
from cruciform.deployment.search.clock import Timing
from cruciform.deployment.search.layer_forms import Form
from cruciform.schemes import make_plan

Networks = Mapping[str, tuple[nn.Module, Mapping[str, Form]]]
SECONDS_OF_A_MAC = 1e-9


@pytest.fixture
def counted_times(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Count 1 ns a MAC. Networks that are not dense are slower than their layers by the factor that is returned."""
    factor = [1.0]

    def measure(kind: Kind, schemes: list[str], *words: object, on_progress: object) -> CostTable:
        macs = {one: make_plan(kind.spec, one).macs_from_input(kind.input_size[1:]) for one in ("full", *schemes)}
        costs = {one: LayerCost(SECONDS_OF_A_MAC * n, "tail" * (one != "full")) for one, n in macs.items()}
        return CostTable(costs, {})

    def time_networks(networks: Networks, setting: EngineSettings, *, kept: object = None) -> dict[str, Timing]:
        return {
            name: Timing((counted_seconds(model, setting) * (1.0 if name == "dense" else factor[0]),))
            for name, (model, _) in networks.items()
        }

    monkeypatch.setattr(survey, "measure_kind", measure)
    monkeypatch.setattr(survey, "time_network", time_networks)
    monkeypatch.setattr(plan_clock, "time_network", time_networks)
    return factor


def counted_seconds(model: nn.Module, setting: EngineSettings) -> float:
    return SECONDS_OF_A_MAC * cruciform.profile(model, input_size=setting.input_size).macs
