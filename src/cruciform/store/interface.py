"""What goes into a network and what its outputs mean: how images are preprocessed, and the names of the classes."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cruciform.errors import StoreError

MOST_CLASSES = 10**6
LONGEST_NAME = 1000  # characters of a name


class Interface(NamedTuple):
    """What a network can be used with.

    Attributes:
        preprocessing: What is done to an image before, as a recipe says it: ``prepare``, and of ``data`` what concerns
            images (``short_side``, ``mean``, ``deviation``); None: not known.
        classes: The names of the outputs, in their order; None: not known.
    """

    preprocessing: dict[str, Any] | None = None
    classes: tuple[str, ...] | None = None


def read_interface(data: Mapping[str, Any], where: str) -> Interface:
    """Read what a file says of it; what it does not say is not known.

    Args:
        data: What the file holds. Artifacts of older versions call preprocessing ``preparation``.
        where: The file, for the message.
    """
    preprocessing = data.get("preprocessing") or data.get("preparation")
    if preprocessing is not None and not (
        isinstance(preprocessing, dict) and set(preprocessing) == {"prepare", "data"}
    ):
        raise StoreError(f"{where}: preprocessing is a table with prepare and data, not {preprocessing!r:.100}")
    return Interface(preprocessing, check_classes(data.get("classes"), where))


def check_classes(names: Sequence[str] | None, where: str) -> tuple[str, ...] | None:
    """Return names of classes, or raises where they are none."""
    if names is None:
        return None
    well = (
        isinstance(names, list | tuple)
        and 0 < len(names) <= MOST_CLASSES
        and all(isinstance(name, str) and len(name) <= LONGEST_NAME for name in names)
    )
    if not well:
        raise StoreError(f"{where}: classes is a list of at most {MOST_CLASSES:,} names, not {names!r:.100}")
    return tuple(names)
