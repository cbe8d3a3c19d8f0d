"""Parameter name patterns in recipes."""

from collections.abc import Collection
from fnmatch import fnmatchcase

from cruciform.errors import RecipeError
from cruciform.registry import did_you_mean


def match(pattern: str, names: Collection[str], key: str) -> list[str]:
    """Return the names that match a pattern; raise where none does.

    Args:
        pattern: A shell-style pattern such as ``features.conv1.*``.
        names: The parameter names of the network.
        key: The recipe key that holds the pattern, for the message.
    """
    found = [name for name in names if fnmatchcase(name, pattern)]
    if not found:
        raise RecipeError(f"{key}: {pattern!r} matches no parameter of the network.{did_you_mean(pattern, names)}")
    return found
