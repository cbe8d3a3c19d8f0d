"""The choice is the best there is, and never above a budget."""

import itertools
import time
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruciform.budgets.solving.good_choice import choose_well
from cruciform.budgets.solving.solver import Layer, Option, front, solve
from cruciform.errors import BudgetError

NUMBERS = st.floats(0.01, 100, allow_nan=False)


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[Layer], dict[str, float]]:
    names = draw(st.sampled_from((("seconds",), ("seconds", "macs"))))
    layers = []
    for index in range(draw(st.integers(1, 4))):
        options = tuple(
            Option(f"o{number}", draw(st.floats(0, 1)), {name: draw(NUMBERS) for name in names})
            for number in range(draw(st.integers(1, 4)))
        )
        layers.append(Layer(f"l{index}", options, draw(st.floats(0.1, 3))))
    budgets = {}
    for name in names:
        low = sum(min(option.costs[name] for option in layer.options) for layer in layers)
        high = sum(max(option.costs[name] for option in layer.options) for layer in layers)
        budgets[name] = low + draw(st.floats(0, 1)) * (high - low)
    return layers, budgets


@given(problems())
def test_it_is_what_trying_everything_finds(problem: tuple[list[Layer], dict[str, float]]) -> None:
    layers, budgets = problem
    fitting = [
        sum(layer.weight * option.value for layer, option in zip(layers, choice, strict=True))
        for choice in itertools.product(*(layer.options for layer in layers))
        if all(sum(option.costs[name] for option in choice) <= limit for name, limit in budgets.items())
    ]
    if not fitting:
        with pytest.raises(BudgetError):
            solve(layers, budgets)
        return
    found = solve(layers, budgets)
    assert all(found.costs[name] <= limit for name, limit in budgets.items())
    assert found.value == pytest.approx(max(fitting), abs=1e-6)


def test_what_the_rest_costs_is_taken_off_first() -> None:
    layer = Layer("a", (Option("full", 1.0, {"ms": 6.0}), Option("lr", 0.5, {"ms": 2.0})))
    assert solve([layer], {"ms": 6.0}).choices["a"].name == "full"
    found = solve([layer], {"ms": 6.0}, fixed={"ms": 3.0})
    assert found.choices["a"].name == "lr"
    assert found.costs == {"ms": 5.0}
    with pytest.raises(
        BudgetError, match="a budget of 4 ms can't be met: the cheapest choice for every layer comes to 5"
    ):
        solve([layer], {"ms": 4.0}, fixed={"ms": 3.0})


@pytest.mark.parametrize("seed", range(40))
def test_a_budget_just_below_what_a_choice_costs_is_kept(seed: int) -> None:
    random = Random(seed)
    layers = [
        Layer(f"l{index}", (Option("full", 1.0, {"macs": 0.0}), *(
            Option(f"o{n}", random.random(), {"macs": -float(random.randrange(10**6, 10**9))}) for n in range(3))))
        for index in range(6)
    ]  # fmt: skip
    dense = 8e9
    reachable = dense + sum(random.choice(layer.options).costs["macs"] for layer in layers)
    found = solve(layers, {"macs": reachable - 1}, fixed={"macs": dense})
    best = max(
        (sum(option.value for option in choice) for choice in itertools.product(*(layer.options for layer in layers))
         if dense + sum(option.costs["macs"] for option in choice) <= reachable - 1),
    )  # fmt: skip
    assert found.costs["macs"] <= reachable - 1
    assert found.value == pytest.approx(best, rel=1e-4)


def test_a_front_goes_up_from_the_cheapest_to_the_best() -> None:
    layers = [
        Layer(f"l{index}", (Option("full", 1.0, {"ms": 5.0 + index}), Option("lr", 0.6 - 0.05 * index, {"ms": 2.0})))
        for index in range(5)
    ]
    found = front(layers, "ms", points=12)
    values, times = [one.value for one in found], [one.costs["ms"] for one in found]
    assert values == sorted(values)
    assert times == sorted(times)
    assert (times[0], values[-1]) == (10.0, 5.0)
    assert len({round(value, 9) for value in values}) == len(values)


@pytest.mark.slow
def test_a_network_of_152_layers_takes_seconds() -> None:
    import random

    chance = random.Random(0)
    layers = [
        Layer(f"l{index}", tuple(
            Option(f"o{number}", chance.random(), {"seconds": 1e-4 * chance.random(), "macs": 1e8 * chance.random()})
            for number in range(12)))
        for index in range(152)
    ]  # fmt: skip
    solve(layers[:1], {"seconds": 1.0})  # imports SciPy
    start = time.process_time()  # not the clock's: other tests run beside it
    budgets = {"seconds": 152 * 3e-5, "macs": 152 * 4e7}
    found = solve(layers, budgets)
    assert time.process_time() - start < 5
    assert all(found.costs[name] <= limit for name, limit in budgets.items())


def alike(layers: int, seed: int) -> list[Layer]:
    """Layers of a few kinds with weights of their own, as large networks have: many choices come to nearly the same."""
    random = Random(seed)
    kinds = [
        [(-random.uniform(0.8, 1.2) * share**2, -random.uniform(0.8, 1) * share) for share in (0.1, 0.3, 0.5, 0.7, 0.9)]
        for _ in range(6)
    ]
    found = []
    for index in range(layers):
        size, weight = 1e-3 * (1 + index % 6), random.uniform(0.1, 3)
        options = (Option(f"o{n}", value, {"s": size * cost}) for n, (value, cost) in enumerate(kinds[index % 6]))
        found.append(Layer(f"l{index}", (Option("dense", 0.0, {"s": 0.0}), *options), weight))
    return found


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("share", [0.02, 0.4, 0.98])
def test_what_a_bound_rules_out_changes_no_optimum(seed: int, share: float) -> None:
    layers = alike(40, seed)
    limit = 1 + share * sum(min(option.costs["s"] for option in layer.options) for layer in layers)
    found = solve(layers, {"s": limit}, fixed={"s": 1.0})
    free = [
        replace(layer, options=tuple(replace(one, costs={**one.costs, "free": 0.0}) for one in layer.options))
        for layer in layers
    ]
    with_two = solve(free, {"s": limit, "free": 1.0}, fixed={"s": 1.0})  # which are solved with all options
    assert found.value == pytest.approx(with_two.value, rel=1e-9)


def test_most_options_of_many_layers_are_ruled_out() -> None:
    layers = alike(350, 0)
    values = [[layer.weight * option.value for option in layer.options] for layer in layers]
    costs = [[option.costs["s"] for option in layer.options] for layer in layers]
    found = choose_well(values, costs, 0.5 * sum(map(min, costs)))
    assert found is not None
    assert min(map(len, found.hopeful)) >= 1
    assert sum(map(len, found.hopeful)) < 1.5 * len(layers)
    assert found.gap < 1e-4


@given(problems())
def test_a_good_choice_is_at_most_its_gap_from_the_best(problem: tuple[list[Layer], dict[str, float]]) -> None:
    layers, budgets = problem
    limit = budgets["seconds"]
    values = [[layer.weight * option.value for option in layer.options] for layer in layers]
    costs = [[option.costs["seconds"] for option in layer.options] for layer in layers]
    found = choose_well(values, costs, limit)
    if found is None:  # the limit is what the cheapest options come to, but for rounding
        assert limit == pytest.approx(sum(map(min, costs)))
        return
    assert sum(row[place] for row, place in zip(costs, found.chosen, strict=True)) <= limit * (1 + 1e-9)
    known = sum(row[place] for row, place in zip(values, found.chosen, strict=True))
    span = sum(max(row) - min(row) for row in values) or 1.0
    best = solve(layers, {"seconds": limit}).value
    assert best - 1e-6 <= known + found.gap * span
    assert known <= best + 1e-6


def test_the_solver_leaves_stdout_to_json(capfd: pytest.CaptureFixture[str]) -> None:
    """HiGHS prints a line of debugging past Python's streams while it solves problems such as this one."""
    layers = alike(351, 0)
    least = sum(min(option.costs["s"] for option in layer.options) for layer in layers)
    for share in (0.2, 0.4, 0.6, 0.8):
        solve(layers, {"s": 1 + share * least}, fixed={"s": 1.0})
    assert capfd.readouterr() == ("", "")


def test_budgets_that_can_be_kept_alone_but_not_together_are_named() -> None:
    layer = Layer(
        "conv", (Option("quick", 1.0, {"s": 1.0, "MACs": 9.0}), Option("small", 1.0, {"s": 9.0, "MACs": 1.0}))
    )
    with pytest.raises(BudgetError, match="the budgets of s and MACs can each be met, but not together"):
        solve([layer], {"s": 5.0, "MACs": 5.0})


@pytest.mark.parametrize("seed", range(20))
def test_a_front_begins_where_the_savings_are_more_than_the_whole(seed: int) -> None:
    """Times of a slow moment, taken off a network that was timed in a fast one: what is left may be about 0 or less."""
    random = Random(seed)
    layers = [
        Layer(str(number), (Option("dense", 1.0, {"s": 0.0}), Option("low", 0.5, {"s": -random.uniform(0.1, 0.4)})))
        for number in range(8)
    ]
    least = sum(layer.options[1].costs["s"] for layer in layers)
    for rest in (-least, -least - 1e-12, -0.9 * least):
        assert front(layers, "s", fixed={"s": rest})[0].value == 4.0
