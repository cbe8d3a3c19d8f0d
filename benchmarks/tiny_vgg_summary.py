"""What ``tiny_vgg.py`` concludes from its runs: means over seeds, differences with standard errors, the order."""

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mean_differences import is_distinguishable, standard_error
from tiny_vgg_networks import DIFFERENCES, NETWORKS, PAPERS, SAME_TIME, published_accuracies

from cruciform.paper.timings import correlation
from cruciform.training.experiments.race import Finish, by_contestant, summarize

FEWEST = 3  # networks that have an order worth correlating


class Difference(NamedTuple):
    """The difference of two mean accuracies.

    Attributes:
        first: The network that is ahead where the difference is positive.
        second: The other.
        points: Percentage points.
        standard_error: Of the difference; None where one of them has a single run.
        exceeds_two_standard_errors: Whether it is distinguishable from none.
    """

    first: str
    second: str
    points: float
    standard_error: float | None
    exceeds_two_standard_errors: bool


def find_means(runs: Sequence[Finish]) -> dict[str, dict[str, float]]:
    """Return what the runs of each network come to, in the order of the table."""
    groups = by_contestant(runs)
    order = [*NETWORKS, *(f"{name}{SAME_TIME}" for name in NETWORKS)]
    return {name: summarize(groups[name]) for name in order if name in groups}


def find_differences(means: Mapping[str, Mapping[str, float]]) -> list[Difference]:
    """Return the differences of all pairs that were trained for the same epochs, the better network first."""
    found = []
    for pair in itertools.combinations([name for name in means if not name.endswith(SAME_TIME)], 2):
        first, second = sorted(pair, key=lambda name: -means[name]["accuracy"])
        found.append(difference(means, first, second))
    return sorted(found, key=lambda one: -one.points)


def difference(means: Mapping[str, Mapping[str, float]], first: str, second: str) -> Difference:
    """Return by how much the first network is ahead of the second."""
    points = means[first]["accuracy"] - means[second]["accuracy"]
    error = standard_error(means[first], means[second])
    return Difference(
        first,
        second,
        round(points, 3),
        None if error is None else round(error, 3),
        is_distinguishable(points, error),
    )


def ranks(values: Sequence[float]) -> list[float]:
    """Return the rank of each value, from 1; equal values share their mean rank."""
    return [
        (sum(other < value for other in values) + sum(other <= value for other in values) + 1) / 2 for value in values
    ]


def rank_correlation(accuracies: Mapping[str, float], published: Mapping[str, float]) -> float:
    """Return Spearman's rank correlation of the accuracies of the networks that both have."""
    names = [name for name in published if name in accuracies]
    return correlation(ranks([accuracies[name] for name in names]), ranks([published[name] for name in names]))


def summarize_order(runs: Sequence[Finish], means: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return the rank correlation of our mean accuracies with the published ones, and that of single seeds.

    A seed counts where all networks that have a mean were trained with it.
    """
    published = published_accuracies()
    ours = {name: means[name]["accuracy"] for name in PAPERS if name in means}
    if len(ours) < FEWEST:
        return {}
    summary: dict[str, float] = {
        "rank_correlation_with_paper": round(rank_correlation(ours, published), 3),
        "rank_correlation_networks": len(ours),
    }
    by_seed: dict[int, dict[str, float]] = {}
    for run in runs:
        if run.name in ours:
            by_seed.setdefault(run.seed, {})[run.name] = run.top1
    single = [rank_correlation(found, published) for found in by_seed.values() if len(found) == len(ours)]
    if single:
        summary |= {
            "rank_correlation_seeds": len(single),
            "rank_correlation_seed_mean": round(statistics.fmean(single), 3),
        }
    if len(single) > 1:
        summary["rank_correlation_seed_std"] = round(statistics.stdev(single), 3)
    return summary


def pooled_std(means: Mapping[str, Mapping[str, float]]) -> float | None:
    """Return the std from seed to seed over all networks together; None where every network has a single run."""
    known = [(one["accuracy_std"], one["seeds"] - 1) for one in means.values() if one["seeds"] > 1]
    freedom = sum(n for _, n in known)
    return math.sqrt(sum(n * std**2 for std, n in known) / freedom) if freedom else None


def summarize_runs(
    runs: Sequence[Finish], training: Mapping[str, Any] | None = None, deployed: Mapping[str, Any] | None = None
) -> tuple[dict[str, float], list[Difference]]:
    """Return the summary of all that is finished, and the differences of all pairs.

    Args:
        runs: The runs that are finished.
        training: Seconds of training steps as ``speed`` recorded them; None: not measured yet.
        deployed: Milliseconds of deployed networks as ``speed`` recorded them; None: not measured yet.
    """
    means = find_means(runs)
    summary: dict[str, float] = {"train_images": runs[0].samples}
    steps = step_seconds(training)
    by_name = by_contestant(runs)
    for name, found in means.items():
        summary |= {f"{name}_{key}": found[key] for key in ("accuracy", "accuracy_std", "seeds") if key in found}
        summary |= {f"{name}_mmacs": found["mmacs"], f"{name}_params": found["params"]}
        network, first = name.removesuffix(SAME_TIME), by_name[name][0]
        summary[f"{name}_epochs"] = first.recipe["epochs"]
        if network in steps:
            seen = first.recipe["epochs"] * first.samples
            summary[f"{name}_train_seconds"] = round(seen / first.recipe["batch_size"] * steps[network], 1)
        if deployed and network in deployed["networks"]:
            summary[f"{name}_ms_b1"] = round(deployed["networks"][network]["milliseconds"], 4)
    for name, pair in DIFFERENCES.items():
        if all(network in means for network in pair):
            one = difference(means, *pair)
            summary[name] = one.points
            if one.standard_error is not None:
                summary[f"{name}_standard_error"] = one.standard_error
                summary[f"{name}_exceeds_two_standard_errors"] = int(one.exceeds_two_standard_errors)
    differences = find_differences(means)
    known = [one for one in differences if one.standard_error is not None]
    if known:
        summary["differences"] = len(known)
        summary["differences_exceeding_two_standard_errors"] = sum(one.exceeds_two_standard_errors for one in known)
    std = pooled_std(means)
    if std is not None:
        summary["accuracy_std_pooled"] = round(std, 3)
    return summary | summarize_order(runs, means), differences


def step_seconds(training: Mapping[str, Any] | None) -> dict[str, float]:
    """Return the shortest measured training step of each network; nothing where none was measured."""
    return {name: min(one["seconds"]) for name, one in training["networks"].items()} if training else {}
