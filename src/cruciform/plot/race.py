"""Accuracy over training time: mean over seeds as a line, their range as a band."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path

from cruciform.plot.style import BLUE, GREEN, GREY, ORANGE, new_figure, save_picture

AccuracyCurve = Sequence[tuple[float, float]]

LINES = [(color, dash) for dash in ("-", "--", ":") for color in (BLUE, ORANGE, GREEN, GREY)]


def draw_race(runs: Mapping[str, Sequence[AccuracyCurve]], path: Path) -> None:
    """Draw, for each contestant, curves of (seconds, accuracy), one for each seed."""
    figure, axes = new_figure(7.2, 4.8)
    lowest = 1.0
    for (label, curves), (color, dash) in zip(runs.items(), cycle(LINES), strict=False):
        epochs = [list(points) for points in zip(*curves, strict=True)]  # of all seeds, epoch by epoch
        seconds = [_mean([second for second, _ in points]) / 60 for points in epochs]
        accuracies = [[100 * accuracy for _, accuracy in points] for points in epochs]
        means = [_mean(values) for values in accuracies]
        axes.plot(seconds, means, f"{dash}o", color=color, markersize=3, label=f"{label}: {means[-1]:.2f} %")
        axes.fill_between(seconds, list(map(min, accuracies)), list(map(max, accuracies)), color=color, alpha=0.2)
        lowest = min(lowest, means[len(means) // 3] / 100)
    axes.set_ylim(100 * lowest - 1, None)
    axes.set_xlim(left=0)
    axes.grid(axis="y", linewidth=0.4)
    axes.set_xlabel("training time (minutes)")
    axes.set_ylabel("top-1 accuracy (%)")
    several = any(len(curves) > 1 for curves in runs.values())
    axes.set_title(
        "Accuracy over training time: mean and range over seeds"
        if several
        else "Accuracy over training time, one seed each"
    )
    axes.legend(loc="lower right", fontsize="small", framealpha=0.85, edgecolor="none")
    save_picture(figure, path)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
