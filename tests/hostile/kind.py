"""A kind of hostile input: how many, what is made ready for it, and what is done with each."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import NamedTuple


class Silent(Exception):  # noqa: N818
    """Something was taken for good that is not what was written: the worst that can happen."""


class Trial(NamedTuple):
    """What a trial is given.

    Attributes:
        number: Of the trial.
        random: Its random numbers.
        seeds: The folder that the kind has made ready; read only.
        scratch: A folder of its own, which is not there yet and is gone afterwards.
        canary: The file that a payload writes when it is run.
    """

    number: int
    random: Random
    seeds: Path
    scratch: Path
    canary: Path


@dataclass(frozen=True)
class Kind:
    """A kind of hostile input.

    Attributes:
        name: Its name.
        count: How many trials there are.
        attack: One trial. An error of the library's own means that the input was refused; a return that it was taken,
            and is right; anything else is a failure.
        prepare: Makes ready what all trials read.
        library: What is imported before, where it is installed: its own start is no part of a trial.
    """

    name: str
    count: int
    attack: Callable[[Trial], None]
    prepare: Callable[[Path], None]
    library: str | None = None


KINDS: dict[str, Kind] = {}


def hostile(
    name: str, count: int, prepare: Callable[[Path], None] = lambda folder: None, *, library: str | None = None
) -> Callable[[Callable[[Trial], None]], Callable[[Trial], None]]:
    """Registers an attack."""

    def register(attack: Callable[[Trial], None]) -> Callable[[Trial], None]:
        KINDS[name] = Kind(name, count, attack, prepare, library)
        return attack

    return register
