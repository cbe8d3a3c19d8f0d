"""From a network and a budget to a scheme for each of its layers, with the reason for each."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from cruciform.budgets.costs import LayerCost
from cruciform.budgets.solver import Layer, Solution, front, import_scipy, not_met, solve
from cruciform.budgets.survey import Survey, Valuation, count_network, survey_network
from cruciform.budgets.units.cost_unit import COST_UNITS, Limit, find_unit
from cruciform.budgets.units.unit_seconds import SECONDS
from cruciform.deployment.search.build import EngineSettings
from cruciform.deployment.search.choose import ProgressCallback
from cruciform.deployment.search.layer_forms import Form
from cruciform.errors import OptionError
from cruciform.schemes import DENSE, find_scheme

SLOWER = 1.02


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
        problems: Which candidates were left out, and why.
    """

    layers: tuple[Chosen, ...]
    value: float
    predicted: Mapping[str, float]
    dense: Mapping[str, float]
    budgets: Mapping[str, float]
    front: tuple[tuple[float, float], ...]
    problems: tuple[str, ...]

    @property
    def mapping(self) -> dict[str, str]:
        """What ``convert`` takes: a scheme for each layer that changes."""
        return {layer.name: layer.scheme for layer in self.layers if layer.scheme != DENSE}

    @property
    def forms(self) -> dict[str, Form]:
        """What ``deploy`` takes: a form for each layer that changes."""
        return {layer.name: layer.form for layer in self.layers if layer.form}  # type: ignore[misc]


def plan_budget(
    model: nn.Module,
    setting: EngineSettings,
    limits: Mapping[str, Limit],
    folder: Path,
    *,
    valuation: Valuation | None = None,
    on_progress: ProgressCallback = lambda what: None,
) -> BudgetPlan:
    """Chooses a scheme for every layer of a network under budgets.

    Args:
        model: The dense network.
        setting: Where it will run.
        limits: The most of ``seconds``, ``MACs``, ``parameters`` or ``bytes``.
        folder: Where measured times are kept.
        valuation: What may be chosen, and what it is worth.
        on_progress: Called with what is being measured.

    Raises:
        BudgetError: The budget can't be met.
    """
    valuation = valuation or Valuation()
    # Measuring takes minutes: whatever can be wrong without it is found before.
    _check(limits)
    import_scipy()
    for candidate in valuation.candidates:
        find_scheme(candidate)
    counted = {name: limit for name, limit in limits.items() if not find_unit(name).measured}
    if counted:
        least, dense = count_network(model, setting, valuation)
        for name, most in _absolute(counted, dense).items():
            if least[name] > most:
                raise not_met(name, most, least[name])
    return choose(survey_network(model, setting, valuation, folder, on_progress=on_progress), limits)


def choose(survey: Survey, limits: Mapping[str, Limit]) -> BudgetPlan:
    """Chooses the best of what a network can be, under budgets.

    Raises:
        BudgetError: The budget can't be met.
    """
    _check(limits)
    budgets = _absolute(limits, survey.dense)
    found = solve(survey.layers, budgets, fixed=survey.dense)
    first = next(iter(budgets))
    curve = front(survey.layers, first, fixed=survey.dense)
    most = sum(layer.weight for layer in survey.layers)
    return BudgetPlan(
        tuple(
            _explain(layer, found, survey.convolutions[layer.name], survey.tables[layer.name].costs)
            for layer in survey.layers
        ),
        found.value / most,
        found.costs,
        survey.dense,
        budgets,
        tuple((one.costs[first], one.value / most) for one in curve),
        tuple(survey.problems),
    )


def _absolute(limits: Mapping[str, Limit], dense: Mapping[str, float]) -> dict[str, float]:
    return {name: limit.amount * (dense[name] if limit.relative else 1) for name, limit in limits.items()}


def _explain(layer: Layer, found: Solution, convolution: str, costs: Mapping[str, LayerCost]) -> Chosen:
    option = found.choices[layer.name]
    cost, dense = costs[option.name], costs[DENSE]
    ratios = {scheme: one.seconds / dense.seconds for scheme, one in costs.items() if scheme != DENSE}
    quickest = min(ratios, key=lambda scheme: ratios[scheme], default=None)
    if quickest is None:
        reason = "kept dense: no other candidate applies here"
    elif option.name != DENSE:
        others = sum(one.costs[SECONDS] > option.costs[SECONDS] and one.value > option.value for one in layer.options)
        reason = (
            f"keeps {option.value:.0%} of the kernel's energy at {ratios[option.name]:.2f} of the dense time; "
            f"{others} candidates keep more and take longer"
        )
    elif ratios[quickest] >= SLOWER:
        reason = f"kept dense: the fastest candidate, {quickest}, takes {ratios[quickest]:.2f}× the dense time here"
    else:
        reason = (
            f"kept dense: the budget allows it; the fastest candidate, {quickest}, takes {ratios[quickest]:.2f} of it"
        )
    return Chosen(layer.name, convolution, option.name, cost.form, option.value, cost.seconds, dense.seconds, reason)


def _check(limits: Mapping[str, Limit]) -> None:
    if not limits:
        raise OptionError(f"no budget is given; limit one of {', '.join(COST_UNITS.names())}, for instance time to 60%")
    for name in limits:
        find_unit(name)
