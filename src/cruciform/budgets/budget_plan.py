"""Choose a scheme for every layer of a network under a budget."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from cruciform.budgets.solving.solver import Layer, Solution, front, import_scipy, not_met, solve
from cruciform.budgets.survey import Survey, Valuation, count_network, survey_network
from cruciform.budgets.units.cost_unit import COST_UNITS, Limit, find_unit
from cruciform.budgets.units.unit_seconds import SECONDS
from cruciform.deployment.search.build import EngineSettings
from cruciform.deployment.search.choose import ProgressCallback
from cruciform.deployment.search.layer_forms import Form
from cruciform.errors import OptionError
from cruciform.schemes import DENSE, find_scheme
from cruciform.text.wording import plural

SLOWER = 1.02


@dataclass(frozen=True)
class Chosen:
    """The choice for a layer.

    Attributes:
        name: The layer.
        convolution: A short description of its convolution.
        scheme: The chosen scheme.
        form: Its fastest equal form in the engine; empty for the dense layer.
        value: The fraction of the kernel's energy that it keeps.
        seconds: Its time, with its neighbors.
        dense_seconds: The time of the dense layer there.
        reason: Why it was chosen, in words.
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
        layers: The choice for each layer that can be converted.
        value: The total value, as a fraction of the dense network's.
        predicted: The predicted cost of the network, by cost unit.
        dense: The cost of the dense network.
        budgets: The limits, as absolute amounts.
        front: The Pareto-optimal (cost, value) pairs of the first budget, from the cheapest to the dense network.
        problems: Candidates that were left out, with the reason.
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
        """The scheme of each layer that changes, as ``convert`` takes it."""
        return {layer.name: layer.scheme for layer in self.layers if layer.scheme != DENSE}

    @property
    def forms(self) -> dict[str, Form]:
        """The form of each layer that changes."""
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
    """Choose a scheme for every layer of a network under budgets.

    Args:
        model: The dense network.
        setting: The engine and batch size.
        limits: Limits by cost unit, such as ``seconds`` or ``MACs``.
        folder: Where measured times are cached.
        valuation: The candidates, and how they are valued.
        on_progress: Called with what is being measured.

    Raises:
        BudgetError: The budget can't be met.
    """
    valuation = valuation or Valuation()
    # Measuring takes minutes, so everything that can be checked without it is checked first.
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
    """Choose the best schemes of a surveyed network under budgets.

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
        tuple(_explain(layer, found, survey) for layer in survey.layers),
        found.value / most,
        found.costs,
        survey.dense,
        budgets,
        tuple((one.costs[first], one.value / most) for one in curve),
        tuple(survey.problems),
    )


def _absolute(limits: Mapping[str, Limit], dense: Mapping[str, float]) -> dict[str, float]:
    return {name: limit.amount * (dense[name] if limit.relative else 1) for name, limit in limits.items()}


def _explain(layer: Layer, found: Solution, survey: Survey) -> Chosen:
    option, costs = found.choices[layer.name], survey.tables[layer.name].costs
    cost, dense = costs[option.name], costs[DENSE]
    ratios = {scheme: one.seconds / dense.seconds for scheme, one in costs.items() if scheme != DENSE}
    quickest = min(ratios, key=lambda scheme: ratios[scheme], default=None)
    if quickest is None:
        reason = "kept dense: no other candidate applies here"
    elif option.name != DENSE:
        others = sum(one.costs[SECONDS] > option.costs[SECONDS] and one.value > option.value for one in layer.options)
        reason = (
            f"{survey.valuation.in_words(option.value)} at {ratios[option.name]:.2f} of the dense time; "
            f"slower and worth more: {plural(others, 'candidate')}"
        )
    elif ratios[quickest] >= SLOWER:
        reason = f"kept dense: the fastest candidate, {quickest}, takes {ratios[quickest]:.2f}× the dense time here"
    else:
        reason = f"kept dense: the budget allows it; {quickest}, the fastest, takes {ratios[quickest]:.2f} of the time"
    convolution = survey.convolutions[layer.name]
    return Chosen(layer.name, convolution, option.name, cost.form, option.value, cost.seconds, dense.seconds, reason)


def _check(limits: Mapping[str, Limit]) -> None:
    if not limits:
        raise OptionError(f"no budget is given; limit one of {', '.join(COST_UNITS.names())}, for instance time to 60%")
    for name in limits:
        find_unit(name)
