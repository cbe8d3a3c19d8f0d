"""Amounts with units, as people write them: ``256MB``, ``60%``, ``12ms``."""

import re
from collections.abc import Mapping

from cruciform.errors import OptionError


def read_amount(text: str, units: Mapping[str, float], what: str) -> tuple[float, str]:
    """Parse a number with a unit, in any case; return the amount and the unit.

    Args:
        text: The text to parse.
        units: The factor of each unit; the empty unit stands for a plain number.
        what: What the text is meant to be, with examples, for the error message.
    """
    spelt = {unit.upper(): unit for unit in units}
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+)\s*(\D*)", text.strip())
    if found is None or found[2].upper() not in spelt:
        raise OptionError(f"{text!r} is not a {what}")
    unit = spelt[found[2].upper()]
    return float(found[1]) * units[unit], unit
