"""What the README.md of a model directory says of it: the rows of its table, for people to read."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cruciform.files import open_regular

README = "README.md"
MOST_README_BYTES = 1 << 16  # of a card; what is longer is none of ours
_ROW = re.compile(r"\|([^|]+)\|([^|]+)\|")
_PERCENTAGE = re.compile(r"\d+(?:\.\d+)?\s?%")


class CardRow(NamedTuple):
    """A row of a card's table.

    Attributes:
        name: What it tells, as ``test accuracy``.
        text: As the card has it.
    """

    name: str
    text: str


def read_card(directory: Path) -> tuple[CardRow, ...]:
    """Returns the rows of two cells of a model directory's README.md; none where there is no such file."""
    try:
        with open_regular(directory / README) as file:
            text = file.read(MOST_README_BYTES).decode("utf-8", "replace")
    except OSError:
        return ()
    return tuple(_rows(text))


def accuracy(card: tuple[CardRow, ...]) -> str:
    """Returns the first percentage of the row that names an accuracy; empty where there is none."""
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
