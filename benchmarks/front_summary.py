"""What ``front.py`` concludes from its runs and times: means over seeds, and who is ahead at equal time.

Equal time is that of ONNX Runtime at batch size 1, each network in its fastest form. The keys:

- ``ahead_of_narrow_100`` and ``_10``: points by which the cross with half of the dense MACs, low-rank from the start,
  is ahead of the narrow dense networks, on 100 and 10 classes; ``warm_ahead_of_narrow_…``: the same of the warm-started
  cross.
- ``warm_start_gain`` (``_10`` on 10 classes): points that the warm start adds to it.
- ``best_ours_…`` and ``best_rival_same_ms_accuracy`` (``_10``): the most accurate of our networks with half of the
  dense MACs, and the most accurate rival at its time; a rival whose slowest network is faster counts with that one.

Which network is the best is read from the same images as its accuracy. That flatters both sides, and the rivals more,
of which there are more. The headline's networks were fixed before any run.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from front_networks import OURS
from front_points import Estimate, FrontPoint, find_point, interpolate, reach, read_lines
from front_runs import CLASSES, CROSS, CROSS_WARM, EPOCHS, HALF, all_networks, lines, run_name
from front_times import DEPLOYED, EQUAL_TIME, TRAINING, fit_seconds, milliseconds, seconds_per_step
from mean_differences import is_distinguishable

from cruciform.training.experiments.race import Finish, by_contestant, summarize

KEPT = ("accuracy", "accuracy_std", "plain_accuracy", "plain_accuracy_std", "seeds", "mmacs", "params")
DIGITS = 3


def summarize_front(runs: Sequence[Finish], times: Mapping[str, Any]) -> dict[str, float]:
    """Return the summary of all that is finished; keys appear when what they rest on is there.

    Args:
        runs: The runs that are finished.
        times: The parts that are measured.
    """
    means = find_means(runs)
    summary = summarize_networks(runs, times)
    for data_set in CLASSES:
        summary |= summarize_conclusions(
            data_set, means, read_lines(data_set, means, milliseconds(times.get(EQUAL_TIME)))
        )
    return summary


def find_means(runs: Sequence[Finish]) -> dict[str, dict[str, float]]:
    """Return what the runs of each network on each data set come to, by the name of the runs."""
    return {name: summarize(group) for name, group in by_contestant(runs).items()}


def summarize_networks(runs: Sequence[Finish], times: Mapping[str, Any]) -> dict[str, float]:
    """Return accuracy, size and times of every network on every data set that it was trained on."""
    summary: dict[str, float] = {}
    groups = by_contestant(runs)
    for data_set in CLASSES:
        for network in all_networks():
            name = run_name(data_set, network)
            if name not in groups:
                continue
            found, first = summarize(groups[name]), groups[name][0]
            summary |= {f"{name}_{key}": found[key] for key in KEPT if key in found}
            summary[f"{name}_epochs"] = first.recipe["epochs"]
            for part in DEPLOYED:
                deployed = milliseconds(times.get(part))
                if network.cold.name in deployed:
                    summary[f"{name}_{part}"] = round(deployed[network.cold.name], 4)
            step = seconds_per_step(times.get(TRAINING), network)
            if step is not None:
                steps = first.recipe["epochs"] * first.samples / first.recipe["batch_size"]
                summary[f"{name}_train_seconds"] = round(steps * step + fit_seconds(times[TRAINING], network), 1)
    return summary


def summarize_conclusions(
    data_set: str, means: Mapping[str, Mapping[str, float]], points: Mapping[str, Sequence[FrontPoint]]
) -> dict[str, float]:
    """Return who is ahead on a data set, and by how much.

    Args:
        data_set: The data set.
        means: What was found of each network, by the name of its runs.
        points: The points of each line.
    """
    classes = CLASSES[data_set]
    ending = "" if data_set == next(iter(EPOCHS)) else f"_{classes}"
    summary: dict[str, float] = {}
    for start, network in (("", CROSS), ("warm_", CROSS_WARM)):
        point = find_point(points.get(network.line, ()), network)
        narrow = interpolate(points.get("dense", ()), point.milliseconds) if point else None
        if point and narrow:
            summary |= _keys(f"{start}ahead_of_narrow_{classes}", point.accuracy.ahead_of(narrow))
    pair = [means.get(run_name(data_set, network)) for network in (CROSS_WARM, CROSS)]
    if pair[0] and pair[1]:
        gain = Estimate.from_summary(pair[0]).ahead_of(Estimate.from_summary(pair[1]))
        summary |= _keys(f"warm_start_gain{ending}", gain)
    best = find_best(points)
    if best:
        ours, _, rival = best
        summary[f"best_ours_ms{ending}"] = round(ours.milliseconds, 4)
        summary |= _keys(f"best_ours_accuracy{ending}", ours.accuracy)
        summary |= _keys(f"best_rival_same_ms_accuracy{ending}", rival)
    return summary


def find_best(points: Mapping[str, Sequence[FrontPoint]]) -> tuple[FrontPoint, str, Estimate] | None:
    """Return our most accurate network of half the MACs, and the best rival within its time: line and accuracy."""
    halves = [
        point for line in points.values() for point in line
        if point.network.family in OURS and point.network.fraction == HALF
    ]  # fmt: skip
    if not halves:
        return None
    ours = max(halves, key=lambda point: point.accuracy.value)
    reached = {line: reach(found, ours.milliseconds) for line, found in points.items() if not is_ours(line)}
    rivals = {line: one for line, one in reached.items() if one is not None}
    if not rivals:
        return None
    best = max(rivals, key=lambda line: rivals[line].value)
    return ours, best, rivals[best]


def is_ours(line: str) -> bool:
    """Return whether a line is one of basis filters."""
    return lines()[line][0].family in OURS


def compare_with_cross(points: Mapping[str, Sequence[FrontPoint]]) -> list[dict[str, Any]]:
    """Return for every network of the other lines its points ahead of the cross, interpolated at the network's time.

    Both are None where no cross is as fast, or none as slow.
    """
    found = []
    for line, networks in points.items():
        for point in reversed(networks) if line != CROSS.line else ():
            cross = interpolate(points.get(CROSS.line, ()), point.milliseconds)
            gap = point.accuracy.ahead_of(cross) if cross else None
            error = gap.standard_error if gap else None
            row: dict[str, Any] = {"line": line, "fraction": point.network.fraction, "points": None}
            row |= {"points": round(gap.value, DIGITS)} if gap else {}
            row["standard_error"] = None if error is None else round(error, DIGITS)
            row["exceeds_two_standard_errors"] = bool(gap) and is_distinguishable(gap.value, error)
            found.append(row)
    return found


def _keys(name: str, estimate: Estimate) -> dict[str, float]:
    """Return the keys of an estimate in a summary."""
    error = {} if estimate.standard_error is None else {
        f"{name}_standard_error": round(estimate.standard_error, DIGITS)
    }  # fmt: skip
    return {name: round(estimate.value, DIGITS)} | error
