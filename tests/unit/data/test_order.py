"""Every sample once an epoch, whoever reads it: the order is a function of (seed, step) and of nothing else."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruciform.data.order import Order, share_of
from cruciform.errors import DataError

orders = st.builds(Order, st.integers(1, 300), st.integers(1, 64), seed=st.none() | st.integers(0, 2**32 - 1))


@given(orders, st.integers(0, 3))
def test_an_epoch_has_every_sample_exactly_once(order: Order, epoch: int) -> None:
    first = epoch * order.steps_per_epoch
    seen = [
        number
        for step in range(first, first + order.steps_per_epoch)
        for number in order.numbers(step, order.positions(step))
    ]
    assert sorted(seen) == list(range(order.samples))


@given(orders, st.lists(st.tuples(st.integers(1, 9), st.integers(1, 5)), min_size=1, max_size=6))
def test_changing_the_number_of_ranks_changes_nothing_of_what_is_seen(
    order: Order, history: list[tuple[int, int]]
) -> None:
    """A history of (steps, ranks), as a run has that is stopped and gone on with on fewer or more machines."""
    step = 0
    for steps, world in history:
        for _ in range(steps):
            positions = order.positions(step)
            parts = [share_of(positions, rank, world) for rank in range(world)]
            assert [place for part in parts for place in part] == list(positions)
            assert max(map(len, parts)) - min(map(len, parts)) <= 1
            step += 1


def test_orders_that_are_too_long_to_list_are_permutations_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cruciform.data.order.MOST_LISTED", 100)
    order = Order(20_000, 256, seed=3)
    seen = [number for step in range(79) for number in order.numbers(step, order.positions(step))]
    assert seen != sorted(seen)
    assert sorted(seen) == list(range(20_000))


def test_a_place_among_a_billion_costs_nothing() -> None:
    order = Order(10**9, 256, seed=3)
    numbers = order.numbers(3_000_000, order.positions(3_000_000))
    assert len(set(numbers)) == 256
    assert max(numbers) < 10**9


def test_seeds_and_epochs_give_unrelated_orders() -> None:
    # Grain's own shuffle adds the epoch to the seed, so that seed 1 repeats seed 0 one epoch later.
    def epoch(seed: int, number: int) -> list[int]:
        order = Order(1000, 1000, seed)
        return order.numbers(number, order.positions(0))

    assert epoch(0, 1) != epoch(1, 0)
    assert epoch(0, 0) != epoch(0, 1)
    assert epoch(7, 3) == epoch(7, 3)


def test_a_shuffle_moves_samples_about_evenly() -> None:
    order = Order(10, 10, seed=5)
    places = Counter(order.numbers(epoch, order.positions(0)).index(0) for epoch in range(2000))
    assert min(places.values()) > 130
    assert max(places.values()) < 280


def test_nothing_to_read_is_an_error() -> None:
    with pytest.raises(DataError, match="0 samples in batches of 8: both must be 1 or more"):
        Order(0, 8)
