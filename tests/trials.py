"""What the suites of hostile inputs and of faults share: trials that can be done again, and a table of them.

A trial is a pure function of (suite, kind, seed, number). So a failure is named by three words on a command line, and
the same words bring it back.
"""

import random
from collections.abc import Sequence
from typing import NamedTuple


class Failure(NamedTuple):
    """A trial that did not end as it must.

    Attributes:
        kind: Of the trial.
        number: Of the trial.
        what: In one word.
        why: In words.
    """

    kind: str
    number: int
    what: str
    why: str


def chance(suite: str, kind: str, seed: int, number: int) -> random.Random:
    """Returns the random numbers of one trial, which depend on nothing else."""
    return random.Random(f"{suite}/{kind}/{seed}/{number}")


def chosen(count: int, share: float, least: int = 3) -> list[int]:
    """Returns the numbers of the trials that make up a share of all, spread evenly."""
    wanted = min(count, max(least, round(count * share)))
    return sorted({index * count // wanted for index in range(wanted)})


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Returns a table for people, in Markdown."""
    cells = [[str(cell) if isinstance(cell, str) else f"{cell:,}" for cell in row] for row in rows]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in cells)])
