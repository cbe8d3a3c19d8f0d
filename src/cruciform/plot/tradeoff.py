"""Cost against error of networks: series of labeled points."""

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

LOOKS = ((BLUE, "s"), (GREEN, "o"), (ORANGE, "d"), (PURPLE, "^"))


@dataclass(frozen=True)
class Spot:
    """A network in a picture.

    Attributes:
        name: What is written beside it.
        cost: What it costs, in the unit of the axis.
        error: The error in percent.
        published: The cost that was published, where it is another.
    """

    name: str
    cost: float
    error: float
    published: float | None = None


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes:
        series: The networks, by what the legend calls them.
        cost: The name and unit of the cost.
        error: The name and unit of the error.
        title: Above it.
        logarithmic: Whether the cost is drawn so.
    """

    series: dict[str, Sequence[Spot]]
    cost: str
    error: str
    title: str = ""
    logarithmic: bool = False


def draw_tradeoff(panels: Sequence[Panel], *, source: str, width: float = PAGE_WIDTH, height: float = 3.4) -> "Figure":
    """Draw panels side by side."""
    figure = empty_figure(width, height)
    shares = [2.0, *[1.0] * (len(panels) - 1)]
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
            others=[(spot.published, spot.error) for spot in spots if spot.published is not None],
            size=FONT_SIZE,
        )
    return figure


def _draw_panel(axes: "Axes", panel: Panel, looks: dict[str, tuple[str, str]]) -> None:
    for label, spots in panel.series.items():
        color, mark = looks[label]
        axes.plot(
            [spot.cost for spot in spots], [spot.error for spot in spots], mark, color=color, markersize=5,
            linestyle="none", zorder=3,
        )  # fmt: skip
        for spot in spots:
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
