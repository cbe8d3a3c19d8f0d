"""Random numbers that depend on what they are for, never on what was drawn before: (seed, epoch, sample) → numbers.

So a sample is changed in the same way whoever reads it, in whatever order, before or after a restart.
"""

import numpy as np


class SampleGenerator(np.random.Generator):
    """The random numbers of one sample in one epoch.

    Attributes:
        epoch: Which one.
        coin: Heads or tails, the same for the sample in every epoch.
    """

    epoch: int
    coin: bool


class KeyedGenerator:
    """numpy's generator, set to a key at will: four times quicker than making a new one for each sample.

    One thread at a time: what ``at`` returns is good until the next call.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._bits = np.random.Philox(key=0)
        self._start = self._bits.state
        self._generator = SampleGenerator(self._bits)

    def at(self, epoch: int, index: int) -> SampleGenerator:
        """Returns the generator for one sample in one epoch."""
        # Philox is a keyed bijection of a counter, made for this: equal keys give equal numbers, others unrelated ones.
        self._start["state"]["key"][:] = (self._seed % 2**32) + ((epoch % 2**32) << 32), index
        self._bits.state = self._start
        self._generator.epoch, self._generator.coin = epoch, _coin(self._seed, index)
        return self._generator


def _coin(seed: int, index: int) -> bool:
    """Mixes two numbers into a bit, as splitmix64 does (Steele et al., 2014)."""
    mixed = (index + (seed + 1) * 0x9E3779B97F4A7C15) % 2**64
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64
    return bool((mixed ^ (mixed >> 31)) & 1)
