"""Goodput: the fraction of time in which a run makes progress when machines fail.

A checkpoint takes C seconds and is written every τ; a failure costs what was done since, and a restart of R seconds.
Failures come at random, every M seconds on average.

    overhead(τ) = C/τ + (τ/2 + R)/M,   best at τ = √(2CM)  (Young 1974, Daly 2006),   goodput = 1 / (1 + overhead)

``simulate_goodput`` plays the same thing through, failure by failure, without the approximations.
"""

import math
from dataclasses import dataclass

import numpy as np

from cruciform.errors import OptionError


@dataclass(frozen=True)
class Failures:
    """Failures and checkpoints of a run.

    Attributes:
        mean_seconds: M.
        checkpoint: C.
        restart: R.
    """

    mean_seconds: float
    checkpoint: float
    restart: float

    @property
    def interval(self) -> float:
        """τ, the best time between checkpoints."""
        return math.sqrt(2 * self.checkpoint * self.mean_seconds)

    @property
    def goodput(self) -> float:
        """The fraction of time that is progress, with the best interval."""
        overhead = self.checkpoint / self.interval + (self.interval / 2 + self.restart) / self.mean_seconds
        return 1 / (1 + overhead)


def simulate_goodput(failures: Failures, *, work: float, seeds: int = 1000, seed: int = 0) -> tuple[float, float]:
    """Play runs through, and returns the mean of their goodput and its standard deviation.

    Args:
        failures: How they are disturbed.
        work: Seconds of progress that a run needs.
        seeds: How many runs.
        seed: Of the random numbers.
    """
    if failures.checkpoint >= failures.mean_seconds:
        raise OptionError("a checkpoint takes longer than the mean time between failures: the run never finishes")
    random = np.random.default_rng(seed)
    interval = failures.interval
    saved = np.zeros(seeds)  # progress that a checkpoint holds
    clock = np.zeros(seeds)
    running = np.ones(seeds, bool)
    while running.any():
        lasts = random.exponential(failures.mean_seconds, seeds)
        needed = work - saved
        # A stretch of ``interval`` seconds of progress and a checkpoint, again and again, until failure or the end.
        checkpoints = np.ceil(needed / interval)
        whole = needed + checkpoints * failures.checkpoint
        ends = lasts >= whole
        stretches = np.floor(lasts / (interval + failures.checkpoint))
        clock += np.where(running, np.where(ends, whole, lasts + failures.restart), 0)
        saved = np.where(running & ~ends, np.minimum(work, saved + stretches * interval), saved)
        running &= ~ends
    goodput = work / clock
    return float(goodput.mean()), float(goodput.std())
