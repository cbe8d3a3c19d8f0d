"""Time several engines on the same images: interleaved rounds, of which the shortest counts.

On one thread it is the CPU time of this process, so that other work on the machine matters less; on several threads it
is wall-clock time.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from numpy.typing import NDArray

from cruciform.deployment.targets.target import Engine

WARM_UP = 2
LEAST_SECONDS = 0.02  # an engine is repeated within a round until it has run for this long


class Deadline:
    """The end of a search.

    Args:
        seconds: The time from now.
    """

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Remaining seconds; negative after the deadline."""
        return self._end - time.monotonic()

    def part(self, fraction: float) -> "Deadline":
        """Return a deadline after a fraction of the remaining time."""
        return Deadline(fraction * self.left)


@dataclass(frozen=True)
class Timing:
    """The times of one engine, in seconds per batch.

    Attributes:
        rounds: The time in each round.
    """

    rounds: tuple[float, ...]

    @property
    def best(self) -> float:
        """The shortest time."""
        return min(self.rounds)

    @property
    def middle(self) -> float:
        """The median time."""
        return median(self.rounds)

    @property
    def drift(self) -> float:
        """The relative difference between the best times of the first and the second half of the rounds."""
        middle = len(self.rounds) // 2
        if not middle:
            return 0.0
        first, second = min(self.rounds[:middle]), min(self.rounds[middle:])
        return abs(first - second) / min(first, second)


def time_engines(
    engines: Mapping[str, Engine], images: NDArray[Any], *, rounds: int, threads: int = 1
) -> dict[str, Timing]:
    """Time engines in interleaved rounds.

    Args:
        engines: The engines, by name.
        images: The batch that they run on.
        rounds: The number of rounds.
        threads: Threads of the engines. One: CPU time is measured; more: wall-clock time.
    """
    clock = time.process_time if threads == 1 else time.perf_counter
    repeats = {}
    for name, engine in engines.items():
        for _ in range(WARM_UP):
            start = time.perf_counter()
            engine(images)
            last = time.perf_counter() - start
        repeats[name] = max(1, round(LEAST_SECONDS / max(last, 1e-9)))
    times: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(rounds):
        for name, engine in engines.items():
            start = clock()
            for _ in range(repeats[name]):
                engine(images)
            times[name].append((clock() - start) / repeats[name])
    return {name: Timing(tuple(values)) for name, values in times.items()}
