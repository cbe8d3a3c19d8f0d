"""Cost against error of networks: series of labeled points."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cruciform.plot.labels import label_points
from cruciform.plot.style import (
    BLUE,
    FONT_SIZE,
    GREEN,
    GREY,
    ORANGE,
    PAGE_WIDTH,
    PURPLE,
    add_legend,
    add_source,
    empty_figure,
    print_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINE_PARTS = 8  # of a line between two points, for labels to keep away from
LOOKS = ((BLUE, "s"), (GREEN, "o"), (ORANGE, "d"), (PURPLE, "^"))


@dataclass(frozen=True)
class Spot:
    """A network in a picture.

    Attributes:
        name: What is written beside it.
        cost: What it costs, in the unit of the axis.
        error: The error in percent.
        published: The cost that was published, where it is another.
        std: Of the error over seeds, drawn as a bar to both sides; None: a single run.
    """

    name: str
    cost: float
    error: float
    published: float | None = None
    std: float | None = None


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes:
        series: The networks, by what the legend calls them.
        cost: The name and unit of the cost.
        error: The name and unit of the error.
        title: Above it.
        logarithmic: Whether the cost is drawn so.
        joined: The series whose points a line joins; empty: none.
    """

    series: dict[str, Sequence[Spot]]
    cost: str
    error: str
    title: str = ""
    logarithmic: bool = False
    joined: str = ""


def draw_tradeoff(
    panels: Sequence[Panel], *, source: str, width: float = PAGE_WIDTH, height: float = 3.4, first: float = 2.0
) -> "Figure":
    """Draw panels side by side; the first one is so many times as wide as each of the others."""
    figure = empty_figure(width, height)
    shares = [first, *[1.0] * (len(panels) - 1)]
    found = figure.subplots(1, len(panels), squeeze=False, width_ratios=shares)[0]
    looks: dict[str, tuple[str, str]] = {}
    for axes, panel in zip(found, panels, strict=True):
        for label in panel.series:
            looks.setdefault(label, LOOKS[len(looks) % len(LOOKS)])
        _draw_panel(axes, panel, looks)
    # One legend for all panels: each look once.
    for label, (color, mark) in looks.items():
        found[0].plot([], [], mark, color=color, markersize=5, linestyle="none", label=label)
    if any(spot.published is not None for panel in panels for spots in panel.series.values() for spot in spots):
        found[0].plot(
            [], [], "o", color=GREY, fillstyle="none", markersize=5, label="published count, where it differs"
        )
    add_legend(figure, found[0], columns=3 if width > 5 else 1)
    add_source(figure, source)
    for axes, panel in zip(found, panels, strict=True):
        spots = [spot for spots in panel.series.values() for spot in spots]
        label_points(
            axes,
            [(spot.cost, spot.error) for spot in spots],
            [spot.name for spot in spots],
            others=[
                *((spot.published, spot.error) for spot in spots if spot.published is not None),
                *((spot.cost, spot.error + end) for spot in spots if spot.std for end in (-spot.std, spot.std)),
                *_along(_line(panel)),
            ],
            size=FONT_SIZE,
        )
    return figure


def _line(panel: Panel) -> list[tuple[float, float]]:
    return sorted((spot.cost, spot.error) for spot in panel.series.get(panel.joined, ()))


def _along(line: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return points along a line that labels should not cover."""
    return [
        (x + part / LINE_PARTS * (right - x), y + part / LINE_PARTS * (end - y))
        for (x, y), (right, end) in itertools.pairwise(line)
        for part in range(1, LINE_PARTS)
    ]


def _draw_panel(axes: "Axes", panel: Panel, looks: dict[str, tuple[str, str]]) -> None:
    for label, spots in panel.series.items():
        color, mark = looks[label]
        axes.plot(
            [spot.cost for spot in spots], [spot.error for spot in spots], mark, color=color, markersize=5,
            linestyle="none", zorder=3,
        )  # fmt: skip
        if label == panel.joined and spots:
            axes.plot(*zip(*_line(panel), strict=True), color=color, linewidth=0.8, alpha=0.5, zorder=1)
        for spot in spots:
            if spot.std:
                axes.errorbar(
                    [spot.cost], [spot.error], yerr=[spot.std], color=color, elinewidth=0.9, capsize=2, zorder=2
                )
            if spot.published is not None:
                axes.plot([spot.cost, spot.published], [spot.error] * 2, color=GREY, linewidth=0.6, zorder=1)
                axes.plot([spot.published], [spot.error], "o", color=GREY, fillstyle="none", markersize=5, zorder=2)
    if panel.logarithmic:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.margins(x=0.12, y=0.15)
    else:
        axes.margins(x=0.12, y=0.15)
        axes.set_xlim(left=0)
    axes.grid(linewidth=0.3, color="#DDDDDD")
    axes.set_axisbelow(True)
    print_axes(axes, x=panel.cost, y=panel.error, title=panel.title)
