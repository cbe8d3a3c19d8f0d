"""Survey a network: the options of every layer, with their costs and values."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from torch import nn

from cruciform.budgets.costs import CostTable, Kind, LayerCost, describe, measure_kind
from cruciform.budgets.network_time import DENSE_NETWORK, time_network
from cruciform.budgets.solving.solver import Layer, Option
from cruciform.budgets.surroundings import find_poolings
from cruciform.budgets.units.cost_unit import LayerRun, NetworkRun, all_units
from cruciform.budgets.value import expected_energy, kept_energy
from cruciform.budgets.yardstick import YARDSTICK
from cruciform.conversion.conversion_report import LayerChange
from cruciform.conversion.convert import plan_conversion
from cruciform.conversion.where import matches
from cruciform.deployment.bench.bench import prefixed
from cruciform.deployment.search.build import EngineSettings
from cruciform.deployment.search.choose import ProgressCallback
from cruciform.errors import BudgetError, OptionError, PlanError
from cruciform.measure.network_profile import LayerCount, Profile
from cruciform.nn.inspect import kernel_of, spec_of
from cruciform.plan import FilterGroup, LayerPlan
from cruciform.registry import did_you_mean
from cruciform.schemes import CROSS_MEMBERS, DENSE, SCHEMES, make_plan
from cruciform.spec import ConvSpec


def list_candidates() -> tuple[str, ...]:
    """Return all registered schemes, and a few more members of ``cross``."""
    return (*SCHEMES.names(), *CROSS_MEMBERS)


@dataclass(frozen=True)
class Valuation:
    """What may be chosen for a layer, and what it is worth: the fraction of the kernel's energy that it keeps.

    Attributes:
        candidates: Schemes to choose from, besides the dense layer.
        importances: Weight of a layer's value, by name pattern; 1 where none matches.
        protect: Name patterns of layers to keep dense.
        trained: Whether to value plans on the network's own weights, because these are trained.
    """

    candidates: Sequence[str] = field(default_factory=list_candidates)
    importances: Mapping[str, float] = field(default_factory=dict)
    protect: Sequence[str] = ()
    trained: bool = False

    def candidates_of(self, name: str, spec: ConvSpec) -> list[str]:
        """Return the schemes to choose from for a layer, without those that equal an earlier one there."""
        return distinct_schemes(spec, self.candidates)

    def value_of(self, name: str, spec: ConvSpec, scheme: str, weight: torch.Tensor) -> float:
        """Return the value of a scheme for a layer."""
        return kept_energy(make_plan(spec, scheme), weight) if self.trained else expected_energy(spec, scheme)

    def in_words(self, value: float) -> str:
        """Say what a value means."""
        return f"keeps {value:.0%} of the kernel's energy"

    @property
    def problems(self) -> list[str]:
        """What was not considered, with the reason."""
        return []


@dataclass(frozen=True)
class Survey:
    """The options of a network.

    Attributes:
        layers: Layers that can be converted, with their options; costs are differences to the dense layer.
        convolutions: A short description of each.
        tables: The measured costs of each, with its neighbors.
        dense: The cost of the dense network, by cost unit.
        valuation: The candidates, and how they were valued.
        idle: Layers that could be converted but are never called.
    """

    layers: tuple[Layer, ...]
    convolutions: Mapping[str, str]
    tables: Mapping[str, CostTable]
    dense: Mapping[str, float]
    valuation: Valuation
    idle: tuple[str, ...] = ()

    @property
    def problems(self) -> list[str]:
        """Candidates that were left out, with the reason."""
        sentences = [
            f"{self.convolutions[name]} can't be converted to {scheme} here: {reason}"
            for name, table in self.tables.items()
            for scheme, reason in table.problems.items()
        ]
        idle = [f"{name} stays dense: it is not called when the network is deployed" for name in self.idle]
        return list(dict.fromkeys([*sentences, *idle, *self.valuation.problems]))


def survey_network(
    model: nn.Module,
    setting: EngineSettings,
    valuation: Valuation,
    folder: Path,
    *,
    on_progress: ProgressCallback = lambda what: None,
) -> Survey:
    """Measure the options of every layer of a network.

    Args:
        model: The dense network.
        setting: The engine and batch size.
        valuation: The candidates, and how they are valued.
        folder: Where measured times are cached.
        on_progress: Called with what is being measured.

    Raises:
        BudgetError: No layer can be converted.
    """
    rows, idle, counts, counted = _count(model, setting, valuation)
    _check_importances(valuation.importances, [name for row in rows for name in row.names])
    times = time_network({DENSE_NETWORK: (model, {})}, setting)
    yardstick = times[YARDSTICK].best if YARDSTICK in times else None
    dense = _network_costs(NetworkRun(counted, times[DENSE_NETWORK].best))
    poolings = find_poolings(model, setting.input_size)
    measured: dict[Kind, CostTable] = {}
    layers, convolutions, tables = [], {}, {}
    for number, row in enumerate(rows, start=1):
        name = row.names[0]
        spec, count = spec_of(model.get_submodule(name)), counts[name]
        # A layer that is called at several sizes, as a detection head, has another cost at each.
        kinds = [Kind(spec, (spec.in_channels, *size), poolings.get(name), maps) for maps, *size in count.inputs]
        wanted = valuation.candidates_of(name, spec)
        for kind in dict.fromkeys(kinds):
            known = measured.get(kind, CostTable({}, {}))
            if kind not in measured or not {*wanted} <= {*known.costs, *known.problems}:
                of_this = prefixed(on_progress, f"layer {number} of {len(rows)}")
                schemes = list(dict.fromkeys((*known.costs, *known.problems, *wanted)))
                measured[kind] = measure_kind(kind, schemes, setting, folder, on_progress=of_this).at(yardstick)
        weight = kernel_of(model.get_submodule(name)).detach()
        # A kind's table also holds what other layers of the kind may become.
        costs = [{one: cost for one, cost in measured[kind].costs.items() if one in (DENSE, *wanted)} for kind in kinds]
        options = _options(name, spec, count, costs, partial(valuation.value_of, weight=weight))
        layers.append(Layer(name, options, _importance(row, valuation.importances)))
        convolutions[name], tables[name] = str(describe(kinds[0])["convolution"]), measured[kinds[0]]
    return Survey(tuple(layers), convolutions, tables, dense, valuation, idle)


def count_network(
    model: nn.Module, setting: EngineSettings, valuation: Valuation
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the least possible cost in each counted unit, and the dense network's.

    This takes no measuring. The engine may not run the plans with the least; only a survey finds out.

    Raises:
        BudgetError: No layer can be converted.
    """
    rows, _, counts, counted = _count(model, setting, valuation)
    dense = _network_costs(NetworkRun(counted))
    least = dict(dense)
    for row in rows:
        spec, count = spec_of(model.get_submodule(row.names[0])), counts[row.names[0]]
        found = []
        for scheme in dict.fromkeys((DENSE, *valuation.candidates_of(row.names[0], spec))):
            with suppress(PlanError):  # not every scheme applies to every layer
                plan, run = make_plan(spec, scheme), LayerRun(count.inputs)
                found.append(_differences(spec, plan, run, run))
        for name in least:
            least[name] += min(saved[name] for saved in found)
    return least, dense


def _count(
    model: nn.Module, setting: EngineSettings, valuation: Valuation
) -> tuple[list[LayerChange], tuple[str, ...], dict[str, LayerCount], Profile]:
    """Return convertible layers, those never called, and counts by layer and in all."""
    report = plan_conversion(model, "lr or sf", protect=valuation.protect, input_size=setting.input_size)
    counts = {row.name: row for row in report.counted.layers} if report.counted else {}
    planned = [row for row in report.layers if row.plan is not None]
    rows = [row for row in planned if row.names[0] in counts and counts[row.names[0]].inputs]
    if not rows or report.counted is None:
        raise BudgetError("this network has no layer that can be converted")
    idle = tuple(row.names[0] for row in planned if row not in rows)
    return rows, idle, counts, report.counted


def distinct_schemes(spec: ConvSpec, schemes: Sequence[str]) -> list[str]:
    """Drop schemes that equal an earlier one here, as ``planes`` equals ``lr`` in 2-D."""
    plans: list[list[set[FilterGroup]]] = []
    kept = []
    for scheme in schemes:
        with suppress(PlanError):  # one that does not apply here is kept: measuring notes why
            stages = [set(stage.groups) for stage in make_plan(spec, scheme).stages]  # in whatever order
            if stages in plans:
                continue
            plans.append(stages)
        kept.append(scheme)
    return kept


def _network_costs(run: NetworkRun) -> dict[str, float]:
    return {unit.name: unit.of_network(run) for unit in all_units() if run.seconds is not None or not unit.measured}


def _differences(spec: ConvSpec, plan: LayerPlan, run: LayerRun, dense_run: LayerRun) -> dict[str, float]:
    """Return the cost of a plan minus the dense layer's, by known unit."""
    dense = make_plan(spec, DENSE)
    return {
        unit.name: unit.of_layer(plan, run) - unit.of_layer(dense, dense_run)
        for unit in all_units()
        if run.seconds is not None or not unit.measured
    }


def _options(
    name: str,
    spec: ConvSpec,
    count: LayerCount,
    calls: Sequence[Mapping[str, LayerCost]],
    value_of: Callable[[str, ConvSpec, str], float],
) -> tuple[Option, ...]:
    """Return the options of a layer, with costs relative to the dense layer."""
    options = []
    for scheme in (scheme for scheme in calls[0] if all(scheme in costs for costs in calls)):
        plan, value = make_plan(spec, scheme), value_of(name, spec, scheme)
        run, dense_run = (LayerRun(count.inputs, sum(costs[one].seconds for costs in calls)) for one in (scheme, DENSE))
        options.append(Option(scheme, value, _differences(spec, plan, run, dense_run)))
    return tuple(options)


def _check_importances(importances: Mapping[str, float], names: Sequence[str]) -> None:
    for pattern, weight in importances.items():
        if not (0 < weight < math.inf):
            raise OptionError(f"the importance of {pattern!r} is {weight}; it must be a number above 0, as 3 or 0.5")
        if not matches(tuple(names), (pattern,)):
            raise OptionError(
                f"the pattern {pattern!r} matches no layer that can be converted.{did_you_mean(pattern, names)}"
            )


def _importance(row: LayerChange, importances: Mapping[str, float]) -> float:
    for pattern, weight in importances.items():
        if matches(row.names, (pattern,)):
            return weight
    return 1.0
