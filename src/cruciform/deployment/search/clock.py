"""Times of several engines on the same images, side by side: in turns, on one thread, the shortest of some rounds.

The time is that which the processor spent on this process, so that what else the machine does counts less; on several
threads it is the time that passed.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from numpy.typing import NDArray

from cruciform.deployment.targets.target import Engine

WARM_UP = 2
LEAST_SECONDS = 0.02  # an engine is run so often in a turn that a turn lasts at least so long


class Deadline:
    """When a search shall be over.

    Args:
        seconds: From now on.
    """

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds that are left; less than 0 where it has passed."""
        return self._end - time.monotonic()

    def part(self, fraction: float) -> "Deadline":
        """Returns one for a fraction of the time that is left."""
        return Deadline(fraction * self.left)


@dataclass(frozen=True)
class Timing:
    """The times of one engine, in seconds for one run.

    Attributes:
        rounds: One time a round.
    """

    rounds: tuple[float, ...]

    @property
    def best(self) -> float:
        """The shortest."""
        return min(self.rounds)

    @property
    def middle(self) -> float:
        """The median."""
        return median(self.rounds)

    @property
    def drift(self) -> float:
        """By what share the best times of the first and the second half of the rounds differ."""
        middle = len(self.rounds) // 2
        if not middle:
            return 0.0
        first, second = min(self.rounds[:middle]), min(self.rounds[middle:])
        return abs(first - second) / min(first, second)


def time_engines(
    engines: Mapping[str, Engine], images: NDArray[Any], *, rounds: int, threads: int = 1
) -> dict[str, Timing]:
    """Times engines in turns.

    Args:
        engines: What to time, by name.
        images: What on.
        rounds: Turns of each.
        threads: How many the engines use: with one the processor's time counts, with more that on the wall.
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
