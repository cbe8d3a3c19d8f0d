"""A kind of fault: how many trials there are, and what one does. A trial says how often it struck."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import NamedTuple

INVARIANTS = {
    "I1": "durable: the newest checkpoint that is taken is whole; none is lost to retention",
    "I2": "exact: the final weights are those of an undisturbed run",
    "I3": "once: every sample once an epoch, less those that are left out, which are listed",
    "I4": "bounded: it ends or goes on in time; nothing is left behind that needs hands",
    "I5": "honest: exit code and last line of the log name the cause",
    "I6": "single writer: never two for one run",
    "I7": "clean: no number in a checkpoint that is none",
    "I8": "quiet: no socket but the loopback's, no shell",
}


class Violation(Exception):  # noqa: N818
    """An invariant does not hold.

    Attributes:
        invariant: Which.
    """

    def __init__(self, invariant: str, why: str) -> None:
        super().__init__(f"{invariant}, {INVARIANTS[invariant].partition(':')[0]}: {why}")
        self.invariant = invariant


class Unable(Exception):  # noqa: N818
    """A fault can't be injected on this machine."""


class Trial(NamedTuple):
    """What a trial is given.

    Attributes:
        number: Of the trial.
        random: Its random numbers.
        shared: A folder that all trials read: data, and what undisturbed runs came to.
        folder: One of its own.
    """

    number: int
    random: Random
    shared: Path
    folder: Path


@dataclass(frozen=True)
class Fault:
    """A kind of fault.

    Attributes:
        name: As ``F1 kill``.
        count: How many trials there are.
        strike: One trial; returns how many faults it has injected.
    """

    name: str
    count: int
    strike: Callable[[Trial], int]


FAULTS: dict[str, Fault] = {}


def fault(name: str, count: int) -> Callable[[Callable[[Trial], int]], Callable[[Trial], int]]:
    """Registers a kind of fault."""

    def register(strike: Callable[[Trial], int]) -> Callable[[Trial], int]:
        FAULTS[name] = Fault(name, count, strike)
        return strike

    return register
