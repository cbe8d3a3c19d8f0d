"""Multiply-accumulates of each layer above the times that they took, one row for each kind of time."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cruciform.plot.style import (
    BLUE,
    FONT_SIZE,
    GREEN,
    ORANGE,
    PAGE_WIDTH,
    PURPLE,
    add_legend,
    add_source,
    empty_figure,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_timings(names: Sequence[str], rows: Mapping[str, tuple[str, Sequence[float]]], *, source: str) -> "Figure":
    """Draw bars.

    Args:
        names: Of the layers.
        rows: By what the legend calls it, the unit and a number for each layer.
        source: What the numbers are.
    """
    figure = empty_figure(PAGE_WIDTH, 1.5 + 0.85 * len(rows))
    found = figure.subplots(len(rows), 1, sharex=True, squeeze=False)[:, 0]
    places = range(len(names))
    for axes, (label, (unit, values)), color in zip(found, rows.items(), (BLUE, ORANGE, GREEN, PURPLE), strict=False):
        axes.bar(places, values, 0.7, color=color)
        found[0].bar([0], [0], color=color, label=label)  # for the legend, which belongs to all
        axes.set_ylabel(unit, fontsize=FONT_SIZE + 1)
        axes.tick_params(labelsize=FONT_SIZE)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", linewidth=0.3, color="#DDDDDD")
        axes.set_axisbelow(True)
    found[-1].set_xticks(list(places), names, rotation=45, ha="right", rotation_mode="anchor", fontsize=FONT_SIZE)
    found[-1].set_xlabel(
        "filter group of gmp-lr, from input to output (x, y: the two orientations)", fontsize=FONT_SIZE + 1
    )
    figure.align_ylabels(list(found))
    add_legend(figure, found[0], columns=2)
    add_source(figure, source)
    return figure
