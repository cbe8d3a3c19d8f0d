"""From a network and a budget to a scheme for each of its layers, with the reason for each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

import torch
from torch import nn

from cruciform.budget.costs import DENSE, Cost, Kind, measure_kind
from cruciform.budget.network import time_network
from cruciform.budget.solver import Layer, Option, Solution, front, solve
from cruciform.budget.value import expected_energy, kept_energy
from cruciform.conversion.api import plan_conversion
from cruciform.conversion.report import LayerChange
from cruciform.deploy.bench import prefixed
from cruciform.deploy.build import Setting
from cruciform.deploy.choose import Tell
from cruciform.deploy.forms import Form
from cruciform.errors import BudgetError, OptionError, PlanError
from cruciform.measure.macs import LayerCount
from cruciform.nn.inspect import spec_of
from cruciform.schemes import make_plan
from cruciform.spec import ConvSpec

SECONDS, MACS, PARAMS, BYTES = "seconds", "MACs", "parameters", "bytes"
CANDIDATES = (
    DENSE, "lr", "sf", "lr-join", "lr-join-wfull", "cross:full=0.125", "cross:full=0.25", "cross:full=0.5",
    "cross:width=0.5,join", "cross:width=0.75,join", "cross:width=0.5,full=0.25,join", "cross:full=0.5,join",
)  # fmt: skip
SLOWER = 1.02


@dataclass(frozen=True)
class Wishes:
    """What is asked for.

    Attributes:
        budgets: The most of seconds, MACs, parameters or bytes.
        relative: Names of those that are given as shares of the dense network's.
        candidates: Schemes to choose from; the dense layer is always among them.
        importances: From name patterns to how much a layer's value counts; 1 where none matches.
        protect: Name patterns of layers to keep.
        trained: Whether the network's own weights say what a plan is worth.
    """

    budgets: Mapping[str, float]
    relative: frozenset[str] = frozenset()
    candidates: Sequence[str] = CANDIDATES
    importances: Mapping[str, float] = field(default_factory=dict)
    protect: Sequence[str] = ()
    trained: bool = False


@dataclass(frozen=True)
class Chosen:
    """What was chosen for a layer, and why.

    Attributes:
        name: The layer.
        convolution: What it is, in short.
        scheme: What it becomes.
        form: The fastest equal form of it in the engine; empty for the dense layer.
        value: What that is worth.
        seconds: What it takes, in its surroundings.
        dense_seconds: What the dense layer takes there.
        reason: Why, in words.
    """

    name: str
    convolution: str
    scheme: str
    form: str
    value: float
    seconds: float
    dense_seconds: float
    reason: str


@dataclass(frozen=True)
class BudgetPlan:
    """A plan for a network.

    Attributes:
        layers: What was chosen for each layer that could be something else.
        value: In all, as a share of the dense network's.
        predicted: What the network will cost.
        dense: What the dense network costs.
        budgets: What it was allowed to, in absolute terms.
        front: The best (cost, value) pairs for the first budget, from the cheapest to the dense network.
    """

    layers: tuple[Chosen, ...]
    value: float
    predicted: Mapping[str, float]
    dense: Mapping[str, float]
    budgets: Mapping[str, float]
    front: tuple[tuple[float, float], ...]

    @property
    def mapping(self) -> dict[str, str]:
        """What ``convert`` takes: a scheme for each layer that changes."""
        return {layer.name: layer.scheme for layer in self.layers if layer.scheme != DENSE}

    @property
    def forms(self) -> dict[str, Form]:
        """What ``deploy`` takes: a form for each layer that changes."""
        return {layer.name: layer.form for layer in self.layers if layer.form}  # type: ignore[misc]


def plan_budget(
    model: nn.Module, setting: Setting, wishes: Wishes, folder: Path, *, tell: Tell = lambda what: None
) -> BudgetPlan:
    """Chooses a scheme for every layer of a network under budgets.

    Args:
        model: The dense network.
        setting: Where it will run.
        wishes: What is asked for.
        folder: Where measured times are kept.
        tell: Told what is being measured.

    Raises:
        BudgetError: The budget can't be met.
    """
    report = plan_conversion(model, "lr", protect=wishes.protect, input_size=setting.input_size)
    counts = {row.name: row for row in report.counted.layers} if report.counted else {}
    rows = [row for row in report.layers if row.plan is not None]
    if not rows or report.counted is None:
        raise BudgetError("this network has no layer that could be something else")
    dense = {
        SECONDS: time_network({"dense": (model, {})}, setting)["dense"].best,
        MACS: float(report.counted.macs),
        PARAMS: float(report.params_before),
        BYTES: 4.0 * report.params_before,
    }
    budgets = _absolute(wishes, dense)
    measured: dict[Kind, dict[str, Cost]] = {}
    layers, shown = [], {}
    for number, row in enumerate(rows, start=1):
        spec, count = _spec(model, row), counts[row.names[0]]
        kind = _kind(spec, count)
        if kind not in measured:
            of_this = prefixed(tell, f"layer {number} of {len(rows)}")
            measured[kind] = measure_kind(kind, wishes.candidates, setting, folder, tell=of_this)
        weight = _weight(model, row) if wishes.trained else None
        options = _options(spec, count, measured[kind], weight)
        layers.append(Layer(row.names[0], options, _importance(row.names, wishes.importances)))
        shown[row.names[0]] = (row.convolution, measured[kind])
    found = solve(layers, budgets, fixed=dense)
    first = next(iter(budgets))
    curve = front(layers, first, fixed=dense)
    most = sum(layer.weight for layer in layers)
    return BudgetPlan(
        tuple(_explain(layer, found, *shown[layer.name]) for layer in layers),
        found.value / most,
        found.costs,
        dense,
        budgets,
        tuple((one.costs[first], one.value / most) for one in curve),
    )


def _options(
    spec: ConvSpec, count: LayerCount, costs: Mapping[str, Cost], weight: torch.Tensor | None
) -> tuple[Option, ...]:
    """Returns what a layer can be; costs are differences to the dense layer, which costs nothing more."""
    full = make_plan(spec, DENSE)
    calls = len(count.inputs)

    def macs(plan_macs: Callable[[Sequence[int]], int]) -> int:
        return sum(batch * plan_macs(size) for batch, *size in count.inputs)

    options = []
    for scheme, cost in costs.items():
        try:
            plan = make_plan(spec, scheme)
        except PlanError:
            continue
        value = expected_energy(spec, scheme) if weight is None else kept_energy(plan, weight)
        params = plan.params - full.params
        options.append(
            Option(
                scheme,
                value,
                {
                    SECONDS: calls * (cost.seconds - costs[DENSE].seconds),
                    MACS: macs(plan.macs_from_input) - macs(full.macs_from_input),
                    PARAMS: params,
                    BYTES: 4 * params,
                },
            )
        )
    return tuple(options)


def _explain(layer: Layer, found: Solution, convolution: str, costs: Mapping[str, Cost]) -> Chosen:
    option = found.choices[layer.name]
    cost, dense = costs[option.name], costs[DENSE]
    ratios = {scheme: one.seconds / dense.seconds for scheme, one in costs.items() if scheme != DENSE}
    quickest = min(ratios, key=lambda scheme: ratios[scheme])
    if option.name != DENSE:
        others = sum(one.costs[SECONDS] > option.costs[SECONDS] and one.value > option.value for one in layer.options)
        reason = (
            f"keeps {option.value:.0%} of a kernel's energy at {ratios[option.name]:.2f} of the dense time; "
            f"{others} candidates keep more and take longer"
        )
    elif ratios[quickest] >= SLOWER:
        reason = f"kept dense: the quickest candidate, {quickest}, was measured {ratios[quickest]:.2f}× slower here"
    else:
        reason = (
            f"kept dense: the budget allows it; the quickest candidate, {quickest}, takes {ratios[quickest]:.2f} of it"
        )
    return Chosen(layer.name, convolution, option.name, cost.form, option.value, cost.seconds, dense.seconds, reason)


def _absolute(wishes: Wishes, dense: Mapping[str, float]) -> dict[str, float]:
    if not wishes.budgets:
        raise OptionError("a budget is missing; give one of time, MACs, parameters or bytes, as --budget 60%")
    unknown = set(wishes.budgets) - set(dense)
    if unknown:
        raise OptionError(f"{', '.join(sorted(unknown))} can't be budgeted; known: {', '.join(dense)}")
    return {name: limit * dense[name] if name in wishes.relative else limit for name, limit in wishes.budgets.items()}


def _spec(model: nn.Module, row: LayerChange) -> ConvSpec:
    return spec_of(model.get_submodule(row.names[0]))  # type: ignore[arg-type]


def _weight(model: nn.Module, row: LayerChange) -> torch.Tensor:
    return model.get_parameter(f"{row.names[0]}.weight").detach()


def _kind(spec: ConvSpec, count: LayerCount) -> Kind:
    _, *size = count.inputs[0]
    return Kind(spec, (spec.in_channels, *size))


def _importance(names: Sequence[str], importances: Mapping[str, float]) -> float:
    for pattern, weight in importances.items():
        if any(fnmatchcase(name, pattern) for name in names):
            return weight
    return 1.0
