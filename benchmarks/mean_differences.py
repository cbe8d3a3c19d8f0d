"""The difference of two means over seeds, and how certain it is."""

import math
from collections.abc import Mapping, Sequence

LIMIT = 2.0  # standard errors: a smaller difference is not distinguishable from none


def standard_error(first: Mapping[str, float], second: Mapping[str, float]) -> float | None:
    """Return the standard error of the difference of two mean accuracies, √(s₁²/n₁ + s₂²/n₂); None for single runs.

    Args:
        first: What ``summarize`` found of one network: ``accuracy``, ``accuracy_std``, ``seeds``.
        second: What it found of the other.
    """
    return joint_error([mean_error(first), mean_error(second)])


def mean_error(found: Mapping[str, float]) -> float | None:
    """Return the standard error of a mean accuracy, s/√n; None for a single run."""
    return found["accuracy_std"] / math.sqrt(found["seeds"]) if found["seeds"] > 1 else None


def joint_error(errors: Sequence[float | None]) -> float | None:
    """Return the standard error of a sum or difference of independent means; None where one of theirs is unknown."""
    known = [error for error in errors if error is not None]
    return math.hypot(*known) if len(known) == len(errors) else None


def is_distinguishable(points: float, error: float | None) -> bool:
    """Return whether a difference exceeds two standard errors."""
    return error is not None and abs(points) > LIMIT * error
