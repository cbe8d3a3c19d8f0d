"""Keyed random numbers: a function of (seed, epoch, sample), independent of what was drawn before.

So a sample is transformed in the same way in any process, in any order, before and after a restart.
"""

import numpy as np


class SampleGenerator(np.random.Generator):
    """The random numbers of one sample in one epoch.

    Attributes:
        epoch: The epoch.
        coin: A random bit that is the same for the sample in every epoch.
    """

    epoch: int
    coin: bool


class KeyedGenerator:
    """A numpy generator that can be set to any key: four times faster than a new one for each sample.

    Not thread-safe: what ``at`` returns is valid until the next call.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._bits = np.random.Philox(key=0)
        self._start = self._bits.state
        self._generator = SampleGenerator(self._bits)

    def at(self, epoch: int, index: int) -> SampleGenerator:
        """Return the generator for one sample in one epoch."""
        # Philox is a keyed bijection of a counter: equal keys give equal numbers, other keys independent ones.
        self._start["state"]["key"][:] = (self._seed % 2**32) + ((epoch % 2**32) << 32), index
        self._bits.state = self._start
        self._generator.epoch, self._generator.coin = epoch, _coin(self._seed, index)
        return self._generator


def _coin(seed: int, index: int) -> bool:
    """Hash two numbers to a bit, as splitmix64 does (Steele et al., 2014)."""
    mixed = (index + (seed + 1) * 0x9E3779B97F4A7C15) % 2**64
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64
    return bool((mixed ^ (mixed >> 31)) & 1)
