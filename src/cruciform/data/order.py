"""Which samples come when: a function of (seed, step), so that the whole state of reading is one number.

n samples in batches of B make ⌈n/B⌉ steps an epoch; the last one is smaller where B does not divide n, and nothing is
dropped. Every step's batch is cut into one slice a rank, so it is the same samples however many ranks share it: going
on after a stop and changing the number of ranks are one mechanism.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from cruciform.data.grain import shuffled_place
from cruciform.errors import DataError

MOST_LISTED = 2**20
"""Samples whose order is listed, 8 MB an epoch. Above, Grain's cipher gives any place without a list; below some ten
thousand it would be slow, for it walks on until it falls within the samples."""


@dataclass(frozen=True)
class Order:
    """The order of samples.

    Attributes:
        samples: How many there are.
        batch: How many all ranks together take in a step.
        seed: Of the shuffle; None: the samples' own order.
    """

    samples: int
    batch: int
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.samples < 1 or self.batch < 1:
            raise DataError(f"{self.samples} samples in batches of {self.batch} make no epoch; both must be above 0")

    @property
    def steps_per_epoch(self) -> int:
        """Steps until every sample has been seen once."""
        return -(-self.samples // self.batch)

    def epoch_of(self, step: int) -> int:
        """Returns the epoch that a step belongs to."""
        return step // self.steps_per_epoch

    def positions(self, step: int) -> range:
        """Returns the places within its epoch that a step takes."""
        first = step % self.steps_per_epoch * self.batch
        return range(first, min(first + self.batch, self.samples))

    def numbers(self, step: int, positions: Sequence[int]) -> list[int]:
        """Returns the numbers of the samples at these places in the epoch of a step."""
        if self.seed is None:
            return list(positions)
        epoch = self.epoch_of(step)
        if self.samples <= MOST_LISTED:
            shuffled = _permutation(self.samples, self.seed, epoch)
            return [int(shuffled[place]) for place in positions]
        key = _epoch_key(self.seed, epoch)
        return [shuffled_place(place, places=self.samples, key=key) for place in positions]


def share_of(positions: range, rank: int, world: int) -> range:
    """Returns the slice of one rank: equal ones, the first ranks taking one more where they can't be."""
    size, more = divmod(len(positions), world)
    first = rank * size + min(rank, more)
    return positions[first : first + size + (rank < more)]


@lru_cache(maxsize=4)
def _permutation(samples: int, seed: int, epoch: int) -> NDArray[np.int64]:
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, epoch]))).permutation(samples)


@lru_cache(maxsize=16)
def _epoch_key(seed: int, epoch: int) -> int:
    # Mixed, not added: seed 1 must not see in its first epoch what seed 0 sees in its second.
    return int(np.random.SeedSequence([seed, epoch]).generate_state(1)[0])
