"""The interface of a network: its preprocessing and class names."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cruciform.errors import StoreError

MOST_CLASSES = 10**6
LONGEST_NAME = 1000  # characters of a name


class Interface(NamedTuple):
    """How images are preprocessed, and the names of the classes.

    Attributes:
        preprocessing: The preprocessing, as recipes write it: ``eval_transforms``, and of ``data`` what concerns
            images (``short_side``, ``mean``, ``std``); None: not known.
        classes: The names of the outputs, in their order; None: not known.
    """

    preprocessing: dict[str, Any] | None = None
    classes: tuple[str, ...] | None = None


def read_interface(data: Mapping[str, Any], where: str) -> Interface:
    """Read the interface from a file; missing keys are unknown.

    Args:
        data: What the file holds. Artifacts of older versions call preprocessing ``preparation``.
        where: The file, for the message.
    """
    preprocessing = _with_todays_keys(data.get("preprocessing") or data.get("preparation"))
    if preprocessing is not None and not (
        isinstance(preprocessing, dict) and set(preprocessing) == {"eval_transforms", "data"}
    ):
        raise StoreError(f"{where}: preprocessing must have the keys eval_transforms and data: {preprocessing!r:.100}")
    return Interface(preprocessing, check_classes(data.get("classes"), where))


def _with_todays_keys(preprocessing: Any) -> Any:
    """Rename keys that older versions wrote."""
    if isinstance(preprocessing, list):
        return [_with_todays_keys(item) for item in preprocessing]
    if not isinstance(preprocessing, dict):
        return "center-crop" if preprocessing == "centre-crop" else preprocessing
    renamed = {"prepare": "eval_transforms", "deviation": "std", "regulariser": "eps"}
    return {renamed.get(key, key): _with_todays_keys(value) for key, value in preprocessing.items()}


def check_classes(names: Sequence[str] | None, where: str) -> tuple[str, ...] | None:
    """Return class names, or raise if they are invalid."""
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
