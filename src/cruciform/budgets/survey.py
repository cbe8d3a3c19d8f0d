"""What every layer of a network can be, what that costs there, and what it is worth: measured before any training."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn

from cruciform.budgets.costs import CostTable, Kind, LayerCost, describe, measure_kind
from cruciform.budgets.network_time import time_network
from cruciform.budgets.solver import Layer, Option
from cruciform.budgets.surroundings import find_poolings
from cruciform.budgets.value import expected_energy, kept_energy
from cruciform.conversion.conversion_report import LayerChange
from cruciform.conversion.convert import plan_conversion
from cruciform.conversion.where import matches
from cruciform.deployment.bench.bench import prefixed
from cruciform.deployment.search.build import EngineSettings
from cruciform.deployment.search.choose import ProgressCallback
from cruciform.errors import BudgetError, OptionError, PlanError
from cruciform.measure.macs import LayerCount
from cruciform.nn.inspect import spec_of
from cruciform.plan import LayerPlan
from cruciform.registry import did_you_mean
from cruciform.schemes import DENSE, make_plan
from cruciform.spec import ConvSpec

BUDGETED = SECONDS, MACS, PARAMS, BYTES = "seconds", "MACs", "parameters", "bytes"
CANDIDATES = (
    DENSE, "lr", "sf", "lr-join", "lr-join-wfull", "cross:full=0.125", "cross:full=0.25", "cross:full=0.5",
    "cross:width=0.5,join", "cross:width=0.75,join", "cross:width=0.5,full=0.25,join", "cross:full=0.5,join",
)  # fmt: skip


@dataclass(frozen=True)
class Valuation:
    """What may be chosen, and what it is worth.

    Attributes:
        candidates: Schemes to choose from; the dense layer is always among them.
        importances: From name patterns to how much a layer's value counts; 1 where none matches.
        protect: Name patterns of layers to keep.
        trained: Whether the network's own weights say what a plan is worth.
    """

    candidates: Sequence[str] = CANDIDATES
    importances: Mapping[str, float] = field(default_factory=dict)
    protect: Sequence[str] = ()
    trained: bool = False


@dataclass(frozen=True)
class Survey:
    """What a network can be.

    Attributes:
        layers: Those that could be something else, with their options; costs are differences to the dense layer.
        convolutions: What each of them is, in short.
        tables: What each of them costs, in its surroundings.
        dense: What the dense network costs.
        idle: Layers that could be something else, but are not called.
    """

    layers: tuple[Layer, ...]
    convolutions: Mapping[str, str]
    tables: Mapping[str, CostTable]
    dense: Mapping[str, float]
    idle: tuple[str, ...] = ()

    @property
    def problems(self) -> list[str]:
        """Says which candidates were left out for which kinds of layers, and why."""
        sentences = [
            f"{self.convolutions[name]} can't be {scheme} here: {reason}"
            for name, table in self.tables.items()
            for scheme, reason in table.problems.items()
        ]
        idle = [f"{name} stays dense: it is not called when the network is deployed" for name in self.idle]
        return list(dict.fromkeys([*sentences, *idle]))


def survey_network(
    model: nn.Module,
    setting: EngineSettings,
    valuation: Valuation,
    folder: Path,
    *,
    on_progress: ProgressCallback = lambda what: None,
) -> Survey:
    """Measures what every layer of a network can be.

    Args:
        model: The dense network.
        setting: Where it will run.
        valuation: What may be chosen.
        folder: Where measured times are kept.
        on_progress: Called with what is being measured.

    Raises:
        BudgetError: There is nothing to choose.
    """
    rows, idle, counts, dense = _count(model, setting, valuation)
    _check_importances(valuation.importances, [name for row in rows for name in row.names])
    dense = {SECONDS: time_network({"dense": (model, {})}, setting)["dense"].best, **dense}
    poolings = find_poolings(model, setting.input_size)
    measured: dict[Kind, CostTable] = {}
    layers, convolutions, tables = [], {}, {}
    for number, row in enumerate(rows, start=1):
        name = row.names[0]
        spec, count = spec_of(model.get_submodule(name)), counts[name]  # type: ignore[arg-type]
        # One that is called at several sizes, as a head of several levels is, costs something else at each.
        kinds = [Kind(spec, (spec.in_channels, *size), poolings.get(name), maps) for maps, *size in count.inputs]
        for kind in dict.fromkeys(kinds):
            if kind not in measured:
                of_this = prefixed(on_progress, f"layer {number} of {len(rows)}")
                measured[kind] = measure_kind(kind, valuation.candidates, setting, folder, on_progress=of_this)
        weight = model.get_parameter(f"{name}.weight").detach() if valuation.trained else None
        options = _options(spec, count, [measured[kind].costs for kind in kinds], weight)
        layers.append(Layer(name, options, _importance(row, valuation.importances)))
        convolutions[name], tables[name] = str(describe(kinds[0])["convolution"]), measured[kinds[0]]
    return Survey(tuple(layers), convolutions, tables, dense, idle)


def count_network(
    model: nn.Module, setting: EngineSettings, valuation: Valuation
) -> tuple[dict[str, float], dict[str, float]]:
    """Returns the fewest MACs, parameters and bytes that a network can have, and the dense network's, by arithmetic.

    An engine may not run what has the fewest; that takes a survey, of minutes.

    Raises:
        BudgetError: There is nothing to choose.
    """
    rows, _, counts, dense = _count(model, setting, valuation)
    least = dict(dense)
    for row in rows:
        spec, count = spec_of(model.get_submodule(row.names[0])), counts[row.names[0]]  # type: ignore[arg-type]
        found = []
        for scheme in dict.fromkeys((DENSE, *valuation.candidates)):
            with suppress(PlanError):  # not every layer can be everything
                found.append(_saved(spec, count, make_plan(spec, scheme)))
        for name in least:
            least[name] += min(saved[name] for saved in found)
    return least, dense


def _count(
    model: nn.Module, setting: EngineSettings, valuation: Valuation
) -> tuple[list[LayerChange], tuple[str, ...], dict[str, LayerCount], dict[str, float]]:
    """Returns the layers that could be something else, those that only are never called, all counts, and their sums."""
    report = plan_conversion(model, "lr", protect=valuation.protect, input_size=setting.input_size)
    counts = {row.name: row for row in report.counted.layers} if report.counted else {}
    planned = [row for row in report.layers if row.plan is not None]
    rows = [row for row in planned if row.names[0] in counts and counts[row.names[0]].inputs]
    if not rows or report.counted is None:
        raise BudgetError("this network has no layer that could be something else")
    idle = tuple(row.names[0] for row in planned if row not in rows)
    params = float(report.params_before)
    return rows, idle, counts, {MACS: float(report.counted.macs), PARAMS: params, BYTES: 4 * params}


def _saved(spec: ConvSpec, count: LayerCount, plan: LayerPlan) -> dict[str, float]:
    """Returns what of all that is counted a plan has more than the dense layer, over all of its calls."""
    full = make_plan(spec, DENSE)
    macs = sum(batch * (plan.macs_from_input(size) - full.macs_from_input(size)) for batch, *size in count.inputs)
    params = plan.params - full.params
    return {MACS: macs, PARAMS: params, BYTES: 4 * params}


def _options(
    spec: ConvSpec, count: LayerCount, calls: Sequence[Mapping[str, LayerCost]], weight: torch.Tensor | None
) -> tuple[Option, ...]:
    """Returns what a layer can be; costs, of each of its calls, are differences to the dense layer's."""
    options = []
    for scheme in (scheme for scheme in calls[0] if all(scheme in costs for costs in calls)):
        plan = make_plan(spec, scheme)
        value = expected_energy(spec, scheme) if weight is None else kept_energy(plan, weight)
        seconds = sum(costs[scheme].seconds - costs[DENSE].seconds for costs in calls)
        options.append(Option(scheme, value, {SECONDS: seconds, **_saved(spec, count, plan)}))
    return tuple(options)


def _check_importances(importances: Mapping[str, float], names: Sequence[str]) -> None:
    for pattern, weight in importances.items():
        if not (0 < weight < math.inf):
            raise OptionError(f"the importance of {pattern!r} is {weight}; it is a number above 0, as 3 or 0.5")
        if not matches(tuple(names), (pattern,)):
            raise OptionError(
                f"the pattern {pattern!r} matches no layer that could be something else.{did_you_mean(pattern, names)}"
            )


def _importance(row: LayerChange, importances: Mapping[str, float]) -> float:
    for pattern, weight in importances.items():
        if matches(row.names, (pattern,)):
            return weight
    return 1.0
