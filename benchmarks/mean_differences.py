"""The difference of two means over seeds, and how certain it is."""

import math
from collections.abc import Mapping

LIMIT = 2.0  # standard errors: a smaller difference is not distinguishable from none


def standard_error(first: Mapping[str, float], second: Mapping[str, float]) -> float | None:
    """Return the standard error of the difference of two mean accuracies, √(s₁²/n₁ + s₂²/n₂); None for single runs.

    Args:
        first: What ``summarize`` found of one network: ``accuracy``, ``accuracy_std``, ``seeds``.
        second: What it found of the other.
    """
    if min(first["seeds"], second["seeds"]) < 2:
        return None
    return math.hypot(*(one["accuracy_std"] / math.sqrt(one["seeds"]) for one in (first, second)))


def is_distinguishable(points: float, error: float | None) -> bool:
    """Return whether a difference exceeds two standard errors."""
    return error is not None and abs(points) > LIMIT * error
