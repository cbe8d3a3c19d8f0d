"""Parameters by the patterns that recipes name them by."""

from collections.abc import Collection
from fnmatch import fnmatchcase

from cruciform.errors import RecipeError
from cruciform.registry import did_you_mean


def match(pattern: str, names: Collection[str], key: str) -> list[str]:
    """Returns the names that a pattern matches, or raises where there are none: it would do nothing, in silence.

    Args:
        pattern: As ``features.conv1.*``.
        names: Of the network's parameters.
        key: Of the recipe, where the pattern stands.
    """
    found = [name for name in names if fnmatchcase(name, pattern)]
    if not found:
        raise RecipeError(f"{key}: no parameter of the network is called {pattern!r}.{did_you_mean(pattern, names)}")
    return found
