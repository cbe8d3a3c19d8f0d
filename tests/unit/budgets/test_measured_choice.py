"""What is chosen keeps to the time that is measured on the whole network, though layers alone add up to another."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cruciform.budgets.budget_plan import BudgetPlan
from cruciform.budgets.costs import CostTable, LayerCost
from cruciform.budgets.measured_choice import CLOSE, choose_measured
from cruciform.budgets.plan_clock import MeasuredPlan
from cruciform.budgets.solving.solver import Layer, Option
from cruciform.budgets.survey import Survey, Valuation
from cruciform.budgets.units.cost_unit import Limit
from cruciform.errors import BudgetError

DENSE_SECONDS, LAYERS = 1.0, 8
SHARES = {"full": 1.0, "sf:rank=50%": 0.75, "sf:rank=25%": 0.5, "sf:rank=12%": 0.25}
SIXTY = {"seconds": Limit(0.6, relative=True)}


def made_survey() -> Survey:
    """Layers that take an eighth of the network each, and could take a quarter of that."""
    each = DENSE_SECONDS / LAYERS
    options = tuple(
        Option(name, share - 1, {"seconds": (share - 1) * each, "MACs": share - 1}) for name, share in SHARES.items()
    )
    table = CostTable({name: LayerCost(share * each, "") for name, share in SHARES.items()}, {})
    names = [f"layer{number}" for number in range(LAYERS)]
    return Survey(
        tuple(Layer(name, options) for name in names),
        dict.fromkeys(names, "8×8, 3×3"),
        dict.fromkeys(names, table),
        {"seconds": DENSE_SECONDS, "MACs": float(LAYERS)},
        Valuation(),
    )


def predicted(plan: BudgetPlan) -> float:
    return sum(SHARES[layer.scheme] for layer in plan.layers) / LAYERS


class Network:
    """Takes so many times what its converted layers add up to, and counts how often it is timed."""

    def __init__(self, factor: float) -> None:
        self.factor, self.timed = factor, 0

    def __call__(self, plan: BudgetPlan) -> MeasuredPlan:
        self.timed += 1
        return MeasuredPlan(plan, self.factor * predicted(plan) * DENSE_SECONDS, DENSE_SECONDS)


@settings(max_examples=25)  # each solves hundreds of knapsacks
@given(factor=st.floats(0.7, 1.6), wanted=st.floats(0.2, 0.95))
def test_it_is_the_slowest_within_the_limit_or_refused(factor: float, wanted: float) -> None:
    sums = {sum(choice) / LAYERS for choice in itertools.combinations_with_replacement(SHARES.values(), LAYERS)}
    possible = [factor * one for one in sums if factor * one <= wanted]
    limits = {"seconds": Limit(wanted, relative=True)}
    if not possible:
        if factor * min(sums) > wanted * (1 + CLOSE):
            with pytest.raises(BudgetError, match="can't be met"):
                choose_measured(made_survey(), limits, Network(factor))
        return
    found = choose_measured(made_survey(), limits, Network(factor))
    assert found.share <= wanted
    step = factor / LAYERS / 4
    assert found.share > max(possible) - 2 * step - CLOSE


def test_a_network_that_is_faster_than_its_layers_is_measured_before_it_is_refused() -> None:
    """The cheapest layers add up to 25 % of the time; the network of them takes 20 %."""
    network = Network(0.8)
    found = choose_measured(made_survey(), {"seconds": Limit(0.21, relative=True)}, network)
    assert found.share == pytest.approx(0.2)
    assert network.timed <= 2  # a choice that comes up again is not timed again


def test_a_network_that_is_too_slow_at_its_cheapest_is_refused_with_what_was_measured() -> None:
    network = Network(1.2)
    message = r"a budget of 0\.26 seconds can't be met: the cheapest choice for every layer comes to 0\.3;"
    with pytest.raises(BudgetError, match=message):
        choose_measured(made_survey(), {"seconds": Limit(0.26, relative=False)}, network)
    assert network.timed < 4


def test_noise_alone_refuses_nothing() -> None:
    found = choose_measured(made_survey(), {"seconds": Limit(0.25, relative=True)}, Network(1.01))
    assert found.share == pytest.approx(0.2525)


def test_other_limits_are_kept_and_refused_as_they_are() -> None:
    network = Network(1.0)
    assert choose_measured(made_survey(), {"MACs": Limit(0.5, relative=True)}, network).share <= 0.5
    assert network.timed == 1
    both = SIXTY | {"MACs": Limit(0.4, relative=True)}
    assert choose_measured(made_survey(), both, network).share <= 0.4
    with pytest.raises(BudgetError, match="a budget of 0.8 MACs"):
        choose_measured(made_survey(), SIXTY | {"MACs": Limit(0.1, relative=True)}, network)
