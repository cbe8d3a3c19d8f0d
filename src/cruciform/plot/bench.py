"""Multiply-accumulates against milliseconds, with a line where time is proportional to MACs."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path

from cruciform.plot.style import BLUE, GREEN, GREY, ORANGE, new_figure, save_picture

BenchPoint = tuple[str, float, float]

MARKERS = [(color, mark) for mark in "os^D" for color in (BLUE, ORANGE, GREEN, GREY)]


def draw_bench(points: Mapping[str, Sequence[BenchPoint]], path: Path, *, title: str) -> None:
    """Draw series of (network, GMACs, milliseconds an image); the first of each is the baseline."""
    figure, axes = new_figure(7.2, 4.8)
    for (label, series), (color, mark) in zip(points.items(), cycle(MARKERS), strict=False):
        _, macs, milliseconds = series[0]
        axes.plot([0, macs], [0, milliseconds], "--", color=color, linewidth=0.9)
        axes.plot([p[1] for p in series], [p[2] for p in series], mark, color=color, label=label)
        for name, x, y in series:
            # Above the point, to the left: the line is below, to the right.
            axes.annotate(name, (x, y), textcoords="offset points", xytext=(-5, 5), fontsize=7, color=color, ha="right")
    axes.plot([], [], "--", color=GREY, label="time proportional to MACs")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("GMACs per image")
    axes.set_ylabel("time per image (ms)")
    axes.set_title(title)
    axes.legend(fontsize="small", framealpha=0.85, edgecolor="none")
    save_picture(figure, path)
