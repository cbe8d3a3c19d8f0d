"""The order of samples: a function of (seed, step), so that the state of reading is one number.

n samples in batches of B make ⌈n/B⌉ steps per epoch; the last batch is smaller where B does not divide n, and no sample
is dropped. The batch of a step is split into one slice per rank, so it has the same samples for any number of ranks:
resuming and changing the number of ranks are one mechanism.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from cruciform.data.grain import shuffled_place
from cruciform.errors import DataError

MOST_LISTED = 2**20
"""Largest number of samples whose permutation is stored, 8 MB per epoch. Above, Grain's cipher computes any position;
for fewer than about ten thousand samples it would be slow, because it repeats until the result is in range."""


@dataclass(frozen=True)
class Order:
    """The order of samples.

    Attributes:
        samples: Number of samples.
        batch: Batch size, over all ranks.
        seed: Of the shuffle; None: not shuffled.
    """

    samples: int
    batch: int
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.samples < 1 or self.batch < 1:
            raise DataError(f"{self.samples} samples in batches of {self.batch}: both must be 1 or more")

    @property
    def steps_per_epoch(self) -> int:
        """Steps per epoch."""
        return -(-self.samples // self.batch)

    def epoch_of(self, step: int) -> int:
        """Return the epoch of a step."""
        return step // self.steps_per_epoch

    def positions(self, step: int) -> range:
        """Return the positions of a step within its epoch."""
        first = step % self.steps_per_epoch * self.batch
        return range(first, min(first + self.batch, self.samples))

    def numbers(self, step: int, positions: Sequence[int]) -> list[int]:
        """Return the sample indices at these positions in the epoch of a step."""
        if self.seed is None:
            return list(positions)
        epoch = self.epoch_of(step)
        if self.samples <= MOST_LISTED:
            shuffled = _permutation(self.samples, self.seed, epoch)
            return [int(shuffled[place]) for place in positions]
        key = _epoch_key(self.seed, epoch)
        return [shuffled_place(place, places=self.samples, key=key) for place in positions]


def share_of(positions: range, rank: int, world: int) -> range:
    """Return the slice of one rank; the first ranks have one sample more where the batch can't be split evenly."""
    size, more = divmod(len(positions), world)
    first = rank * size + min(rank, more)
    return positions[first : first + size + (rank < more)]


@lru_cache(maxsize=4)
def _permutation(samples: int, seed: int, epoch: int) -> NDArray[np.int64]:
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, epoch]))).permutation(samples)


@lru_cache(maxsize=16)
def _epoch_key(seed: int, epoch: int) -> int:
    # Hashed, not added: epoch 0 of seed 1 must differ from epoch 1 of seed 0.
    return int(np.random.SeedSequence([seed, epoch]).generate_state(1)[0])
