"""Find a good choice under one budget, how far it may be from the best, and the options that no better one can have.

With a price λ on the budget each layer is chosen for by itself, and what they come to, Σᵢ maxⱼ(wᵢvᵢⱼ − λcᵢⱼ) + λB, is a
bound on every choice. An option that loses more against the best of its layer than lies between that bound and a choice
that is known is in no better choice. What is left of hundreds of layers is a few options that are close.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
HALVINGS = 60
DOUBLINGS = 200
ROUNDING = 1e-12  # of the bound: options so close to it are kept


class GoodChoice(NamedTuple):
    """A choice that keeps the budget.

    Attributes:
        chosen: The place of the option of each layer.
        gap: How much more any choice can be worth at most, as a fraction of what the values of all layers range over.
        hopeful: The places of the options of each layer that may be in a better choice, and of those chosen here.
    """

    chosen: list[int]
    gap: float
    hopeful: list[list[int]]


def choose_well(values: Sequence[Sequence[float]], costs: Sequence[Sequence[float]], room: float) -> GoodChoice | None:
    """Choose an option for each layer; None where rounding decides whether the cheapest options fit.

    Args:
        values: Of the options of each layer, weighted.
        costs: Of the same options.
        room: The limit on the sum of costs, which the cheapest options keep.
    """
    value, cost = _table(values, -np.inf), _table(costs, 0.0)
    scale = max(np.abs(cost).max(initial=0.0), abs(room)) or 1.0
    cost, room = cost / scale, room / scale
    price = _find_price(value, cost, room)
    if price is None:
        return None
    worth = value - price * cost
    best = worth.max(axis=1)
    bound = best.sum() + price * room
    chosen = _improve(value, cost, room, worth.argmax(axis=1))
    known = _pick(value, chosen).sum()
    hopeful = bound - (best[:, None] - worth) >= known - ROUNDING * max(abs(bound), abs(best).sum())
    hopeful[np.arange(len(value)), chosen] = True
    span = sum(max(row) - min(row) for row in values) or 1.0
    places = [np.flatnonzero(row).tolist() for row in hopeful]
    return GoodChoice(chosen.tolist(), float((bound - known) / span), places)


def _table(rows: Sequence[Sequence[float]], empty: float) -> Floats:
    table = np.full((len(rows), max(map(len, rows))), empty)
    for line, row in zip(table, rows, strict=True):
        line[: len(row)] = row
    return table


def _find_price(value: Floats, cost: Floats, room: float) -> float | None:
    """Return about the lowest price at which the layers, each chosen for by itself, keep the limit."""

    def keeps(price: float) -> bool:
        return bool(_pick(cost, (value - price * cost).argmax(axis=1)).sum() <= room)

    if keeps(0.0):
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(DOUBLINGS):
        if keeps(high):
            break
        low, high = high, 2 * high
    else:
        return None  # there is room for the cheapest options only, but for rounding
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if keeps(middle) else (middle, high)
    return high


def _improve(value: Floats, cost: Floats, room: float, chosen: NDArray[np.intp]) -> NDArray[np.intp]:
    """Change a choice by the best exchange in two layers at a time, while there is any."""
    layers, options = np.nonzero(np.isfinite(value))
    while True:
        gain = (value - _pick(value, chosen)[:, None])[layers, options]
        extra = (cost - _pick(cost, chosen)[:, None])[layers, options]
        left = room - _pick(cost, chosen).sum()
        cheapest_first = extra.argsort(kind="stable")
        best_until = _places_of_maxima(gain[cheapest_first])
        fitting = extra[cheapest_first].searchsorted(left - extra, side="right") - 1
        other = cheapest_first[best_until[fitting.clip(0)]]  # the best exchange that fits beside each
        both = np.where((fitting >= 0) & (layers != layers[other]), gain + gain[other], 0.0)
        first = both.argmax()
        if both[first] <= ROUNDING * abs(_pick(value, chosen)).sum():
            return chosen
        chosen[layers[first]], chosen[layers[other[first]]] = options[first], options[other[first]]


def _places_of_maxima(values: Floats) -> NDArray[np.intp]:
    """Return where the greatest value up to each place is."""
    greatest = np.maximum.accumulate(values)
    return np.maximum.accumulate(np.where(values == greatest, np.arange(len(values)), 0))


def _pick(table: Floats, chosen: NDArray[np.intp]) -> Floats:
    return table[np.arange(len(table)), chosen]
