"""Choose one option per layer for the greatest value within all budgets, exactly.

    maximize Σᵢⱼ wᵢ vᵢⱼ xᵢⱼ  with  Σⱼ xᵢⱼ = 1 for every layer i,  Σᵢⱼ cᵢⱼᵏ xᵢⱼ ≤ Bᵏ for every budget k,  x ∈ {0, 1}

A multiple-choice knapsack, solved by HiGHS through SciPy. Options that are dominated, or that a bound rules out, are
dropped first, which changes no optimum and makes it fast.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cruciform.budgets.solving.good_choice import choose_well
from cruciform.errors import BudgetError, MissingExtraError
from cruciform.text.native_output import STDOUT, without_chatter

ATTEMPTS = 4
TOLERANCE = 1e-6
SLACK = 1e-9
EXACT, VISIBLE = 1e-12, 1e-3  # gaps: of a choice, and of a point in a picture
NO_DECIMALS = 1000  # amounts from here on are printed without decimals


@dataclass(frozen=True)
class Option:
    """An option of a layer.

    Attributes:
        name: Its scheme.
        value: Its value; 1 for the dense layer.
        costs: Its cost, by cost unit.
    """

    name: str
    value: float
    costs: Mapping[str, float]


@dataclass(frozen=True)
class Layer:
    """A layer to choose for.

    Attributes:
        name: Its name.
        options: Its options.
        weight: The weight of its value.
    """

    name: str
    options: tuple[Option, ...]
    weight: float = 1.0


@dataclass(frozen=True)
class Solution:
    """The optimal choice.

    Attributes:
        choices: The option of each layer, by the layer's name.
        value: Σ weight · value.
        costs: The cost of the whole network, by cost unit.
    """

    choices: Mapping[str, Option]
    value: float
    costs: Mapping[str, float]


def solve(
    layers: Sequence[Layer],
    budgets: Mapping[str, float],
    *,
    fixed: Mapping[str, float] | None = None,
    gap: float = EXACT,
) -> Solution:
    """Choose the options of the greatest total value within all budgets.

    Args:
        layers: The layers and their options.
        budgets: The limits, by cost unit.
        fixed: The cost of the rest of the network.
        gap: How much less than the best is good enough, as a fraction of what the values of all layers range over.

    Raises:
        BudgetError: Even the cheapest options exceed a budget.
    """
    rest = {**dict.fromkeys(budgets, 0.0), **(fixed or {})}
    _check_possible(layers, budgets, rest)
    kept = [_undominated(layer, list(budgets)) for layer in layers]
    for attempt in range(ATTEMPTS):
        # The solver has a tolerance of 1e-6, but a budget must never be exceeded. Room is negative where costs are
        # differences to the dense network.
        tighter = TOLERANCE * 4 ** (attempt - 1) if attempt else 0.0
        room = {name: limit - rest[name] - tighter * abs(limit - rest[name]) for name, limit in budgets.items()}
        chosen = _solve(layers, kept, room, gap)
        solution = _total(layers, chosen, rest, budgets)
        if all(solution.costs[name] <= limit for name, limit in budgets.items()):
            return solution
    raise BudgetError("the solver exceeded the budget; please report this")


def front(
    layers: Sequence[Layer], budgeted: str, *, points: int = 20, fixed: Mapping[str, float] | None = None
) -> list[Solution]:
    """Return the Pareto front to draw it: evenly spaced in cost, the cheapest choice first, to a thousandth."""
    rest = (fixed or {}).get(budgeted, 0.0)
    low, high = (
        rest + sum(pick(option.costs[budgeted] for option in layer.options) for layer in layers) for pick in (min, max)
    )
    found: list[Solution] = []
    for index in range(points):
        limit = low + (high - low) * index / max(1, points - 1)
        limit += SLACK * max(abs(limit), abs(rest))  # costs are differences to the rest, and may cancel
        solution = solve(layers, {budgeted: limit}, fixed=fixed, gap=VISIBLE)
        if not found or solution.value > found[-1].value:
            found.append(solution)
    return found


def _undominated(layer: Layer, budgeted: list[str]) -> list[Option]:
    kept: list[Option] = []
    for option in sorted(layer.options, key=lambda one: (-one.value, *(one.costs[name] for name in budgeted))):
        beaten = any(all(one.costs[name] <= option.costs[name] for name in budgeted) for one in kept)
        if not beaten:
            kept.append(option)
    return kept


def _solve(
    layers: Sequence[Layer], kept: Sequence[Sequence[Option]], room: Mapping[str, float], gap: float
) -> list[Option]:
    if not layers:
        return []
    optimize, sparse = import_scipy()
    if len(room) == 1:
        ((name, limit),) = room.items()
        values = [[layer.weight * option.value for option in row] for layer, row in zip(layers, kept, strict=True)]
        good = choose_well(values, [[option.costs[name] for option in row] for row in kept], limit)
        if good:
            if good.gap <= gap:
                return [row[place] for row, place in zip(kept, good.chosen, strict=True)]
            kept = [[row[place] for place in places] for row, places in zip(kept, good.hopeful, strict=True)]
    options = [option for row in kept for option in row]
    weights = [layer.weight for layer, row in zip(layers, kept, strict=True) for _ in row]
    owners = [index for index, row in enumerate(kept) for _ in row]
    one_each = sparse.csr_array((np.ones(len(options)), (owners, range(len(options)))), (len(layers), len(options)))
    constraints = [optimize.LinearConstraint(one_each, 1, 1)]
    for name, limit in room.items():
        scale = abs(limit) or 1.0  # each budget in its own unit: seconds and MACs differ by 12 orders of magnitude
        row = np.array([[option.costs[name] / scale for option in options]])
        constraints.append(optimize.LinearConstraint(sparse.csr_array(row), -np.inf, limit / scale))
    with without_chatter(STDOUT):  # the solver has a line of debugging left in it, and our stdout may be JSON
        result = optimize.milp(
            c=[-weight * option.value for weight, option in zip(weights, options, strict=True)],
            constraints=constraints,
            integrality=np.ones(len(options)),
            bounds=optimize.Bounds(0, 1),
            options={"mip_rel_gap": 0.0},
        )
    if result.x is None:
        raise BudgetError(f"the budgets of {' and '.join(room)} can each be met, but not together: raise one")
    return [option for option, taken in zip(options, result.x, strict=True) if taken > 0.5]


def _total(
    layers: Sequence[Layer], chosen: Sequence[Option], rest: Mapping[str, float], budgets: Mapping[str, float]
) -> Solution:
    names = {name for option in chosen for name in option.costs} | set(budgets)
    return Solution(
        {layer.name: option for layer, option in zip(layers, chosen, strict=True)},
        sum(layer.weight * option.value for layer, option in zip(layers, chosen, strict=True)),
        {name: rest.get(name, 0.0) + sum(option.costs.get(name, 0.0) for option in chosen) for name in sorted(names)},
    )


def _check_possible(layers: Sequence[Layer], budgets: Mapping[str, float], rest: Mapping[str, float]) -> None:
    for layer in layers:
        if not layer.options:
            raise BudgetError(f"the layer {layer.name} has no option")
    for name, limit in budgets.items():
        least = least_cost(layers, name, fixed=rest)
        if least > limit:
            raise not_met(name, limit, least)


def least_cost(layers: Sequence[Layer], name: str, *, fixed: Mapping[str, float]) -> float:
    """Return what the cheapest option of every layer comes to, by one cost unit."""
    return fixed[name] + sum(min(option.costs[name] for option in layer.options) for layer in layers)


def not_met(name: str, limit: float, least: float) -> BudgetError:
    """Return the error for a budget below the least possible cost."""

    def amount(number: float) -> str:
        return f"{number:,.0f}" if number >= NO_DECIMALS else f"{number:.4g}"

    return BudgetError(
        f"a budget of {amount(limit)} {name} can't be met: the cheapest choice for every layer comes to "
        f"{amount(least)}; allow that much, or add candidates"
    )


def import_scipy() -> Any:
    """Import SciPy, or raise with the extra to install."""
    try:
        from scipy import optimize, sparse
    except ImportError as error:
        raise MissingExtraError(f"budgets are solved by SciPy ({error}): pip install 'cruciform[budget]'") from error
    return optimize, sparse
