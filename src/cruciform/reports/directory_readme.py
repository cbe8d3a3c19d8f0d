"""Read the table in the README.md of a model directory."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cruciform.files import open_regular

README = "README.md"
MOST_README_BYTES = 1 << 16  # of a card; longer files are not ours
_ROW = re.compile(r"\|([^|]+)\|([^|]+)\|")
_PERCENTAGE = re.compile(r"\d+(?:\.\d+)?\s?%")


class CardRow(NamedTuple):
    """A row of a card's table.

    Attributes:
        name: The first cell, as ``test accuracy``.
        text: The second cell.
    """

    name: str
    text: str


def read_card(directory: Path) -> tuple[CardRow, ...]:
    """Return the two-cell table rows of a README.md, if it exists."""
    try:
        with open_regular(directory / README) as file:
            text = file.read(MOST_README_BYTES).decode("utf-8", "replace")
    except OSError:
        return ()
    return tuple(_rows(text))


def accuracy(card: tuple[CardRow, ...]) -> str:
    """Return the first percentage in a row about accuracy, or an empty text."""
    for row in card:
        found = _PERCENTAGE.search(row.text) if "accuracy" in row.name.lower() else None
        if found:
            return found[0]
    return ""


def _rows(text: str) -> Iterator[CardRow]:
    for line in text.splitlines():
        found = _ROW.fullmatch(line.strip())
        name, value = (found[1].strip(), found[2].strip()) if found else ("", "")
        if name and value and set(name) - set("-:"):
            yield CardRow(name, value.replace("`", ""))
