"""Points of accuracy over measured time, and lines of them: interpolated at equal time, with standard errors.

Accuracies are means over seeds. Between two networks of a line, accuracy is interpolated linearly in the logarithm of
time; beyond its fastest and its slowest one there is none. Times count as exact: their errors are much smaller.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from front_networks import FrontNetwork
from front_runs import lines, run_name
from mean_differences import joint_error, mean_error


@dataclass(frozen=True)
class Estimate:
    """A mean, or a difference of means.

    Attributes:
        value: In percent, or percentage points.
        standard_error: None where it rests on single runs.
    """

    value: float
    standard_error: float | None

    @classmethod
    def from_summary(cls, found: Mapping[str, float]) -> "Estimate":
        """Return the accuracy of what ``summarize`` found of a network."""
        return cls(found["accuracy"], mean_error(found))

    def ahead_of(self, other: "Estimate") -> "Estimate":
        """Return by how much it is higher than another, independent one."""
        error = joint_error([self.standard_error, other.standard_error])
        return Estimate(self.value - other.value, error)


@dataclass(frozen=True)
class FrontPoint:
    """A network that is trained and timed.

    Attributes:
        network: The network.
        milliseconds: Measured.
        accuracy: Over its seeds.
        std: Of the accuracy over seeds; None for a single run.
    """

    network: FrontNetwork
    milliseconds: float
    accuracy: Estimate
    std: float | None = None


def read_lines(
    data_set: str, means: Mapping[str, Mapping[str, float]], times: Mapping[str, float]
) -> dict[str, list[FrontPoint]]:
    """Return the points of each line on a data set, the fastest first; lines without one are left out.

    Args:
        data_set: What the networks were trained on.
        means: What ``summarize`` found of each network, by the name of its runs.
        times: Milliseconds of deployed networks, by name.
    """
    found = {}
    for line, networks in lines().items():
        points = [
            FrontPoint(
                one, times[one.cold.name], Estimate.from_summary(means[name]), means[name].get("accuracy_std")
            )
            for one in networks
            if (name := run_name(data_set, one)) in means and one.cold.name in times
        ]  # fmt: skip
        if points:
            found[line] = sorted(points, key=lambda point: point.milliseconds)
    return found


def interpolate(line: Sequence[FrontPoint], milliseconds: float) -> Estimate | None:
    """Return the accuracy of a line at a time; None where it has no network that is as fast, or none as slow.

    Args:
        line: Its points, the fastest first.
        milliseconds: The time.
    """
    faster = [point for point in line if point.milliseconds <= milliseconds]
    slower = [point for point in line if point.milliseconds >= milliseconds]
    if not faster or not slower:
        return None
    left, right = faster[-1], slower[0]
    if left.milliseconds >= right.milliseconds:  # a network of exactly this time
        return left.accuracy
    weight = math.log(milliseconds / left.milliseconds) / math.log(right.milliseconds / left.milliseconds)
    parts = ((1 - weight, left.accuracy), (weight, right.accuracy))
    errors = [None if one.standard_error is None else share * one.standard_error for share, one in parts]
    return Estimate(sum(share * one.value for share, one in parts), joint_error(errors))


def reach(line: Sequence[FrontPoint], milliseconds: float) -> Estimate | None:
    """Return the accuracy of a line within a time: interpolated, or that of its slowest network if that is faster."""
    slowest = line[-1]
    return slowest.accuracy if slowest.milliseconds < milliseconds else interpolate(line, milliseconds)


def find_point(points: Iterable[FrontPoint], network: FrontNetwork) -> FrontPoint | None:
    """Return the point of a network; None where it is not trained or not timed yet."""
    return next((point for point in points if point.network == network), None)
