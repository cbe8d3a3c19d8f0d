"""What a scheme computes, as a diagram of its plan: stages from left to right, filter groups one below the other."""

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from cruciform.plan import FilterGroup, LayerPlan, embedding_offset
from cruciform.plot.style import (
    BLUE,
    FONT_SIZE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PAGE_WIDTH,
    add_legend,
    add_source,
    empty_figure,
)
from cruciform.spec import join_sizes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, CELL = 100.0, 1.5  # the drawing's own units
GROUP_GAP = 7.2  # between two groups of a stage
STAGE_OFFSETS = (34.0, 62.0)  # where stages stand
OUTPUT = 80.0


class Method(NamedTuple):
    """A row of the diagram.

    Attributes:
        title: What it is called.
        plan: What it computes.
    """

    title: str
    plan: LayerPlan


def draw_methods(methods: Sequence[Method], *, source: str) -> "Figure":
    """Draw a row for each plan, and beside it what a pixel of its output costs."""
    heights = [max(len(stage.groups) for stage in method.plan.stages) * GROUP_GAP + 2.4 for method in methods]
    figure = empty_figure(PAGE_WIDTH, 0.068 * sum(heights) + 0.8)
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.set_xlim(0, WIDTH)
    axes.set_ylim(-sum(heights), 2.6)
    dense = _weights(methods[0].plan)
    for x, text in (
        (0, "layer"),
        (18, "input"),
        (STAGE_OFFSETS[0], "filters"),
        (OUTPUT, "output"),
        (91, "MACs per pixel"),
    ):
        axes.text(x, 1.2, text, fontsize=FONT_SIZE, color=GREY, va="center", ha="left" if x == 0 else "center")
    top = 0.0
    for height, method in zip(heights, methods, strict=True):
        axes.axhline(top, color="#DDDDDD", linewidth=0.6)
        _draw_method(axes, method, top - height / 2, dense)
        top -= height
    kinds = {"full k×k kernel": BLUE, "1-D filter": GREEN, "1×1": ORANGE}
    for label, color in kinds.items():
        axes.plot([], [], "s", color=color, markersize=6, label=label)
    axes.plot([], [], color=INK, linewidth=1.6, label="concatenated channels")
    add_legend(figure, axes, columns=4)
    add_source(figure, source)
    return figure


def _draw_method(axes: "Axes", method: Method, middle: float, dense: int) -> None:
    plan = method.plan
    axes.text(0, middle, method.title, fontsize=FONT_SIZE, va="center", color=INK, linespacing=1.3)
    _maps(axes, 18, middle, f"{plan.spec.in_channels}")
    before = [(20.6, middle)]
    for x, stage in zip(STAGE_OFFSETS, plan.stages, strict=False):
        places = [middle + ((len(stage.groups) - 1) / 2 - n) * GROUP_GAP for n in range(len(stage.groups))]
        after = []
        for y, group in zip(places, stage.groups, strict=True):
            for start in before:
                _arrow(axes, start, (x - 6.4, y))
            _filter(axes, x - 3.6, y, group, plan.spec.kernel)
            axes.text(
                x + 0.2, y, f"{join_sizes(group.kernel)}\n{group.filters} filters", fontsize=FONT_SIZE, va="center"
            )
            after.append((x + 7.8, y))
        before = after
        if len(after) > 1:  # a bar where their outputs are put together
            axes.plot([x + 11.6] * 2, [places[0] + 1.5, places[-1] - 1.5], color=INK, linewidth=1.6)
            for start in after:
                _arrow(axes, start, (x + 11.3, start[1]))
            before = [(x + 11.8, middle)]
    for start in before:
        _arrow(axes, start, (OUTPUT - 2.6, middle))
    _maps(axes, OUTPUT, middle, f"{plan.spec.out_channels}")
    weights = _weights(plan)
    axes.text(91, middle, f"{weights:,}\n{weights / dense:.0%}", fontsize=FONT_SIZE, va="center", ha="center")


def _maps(axes: "Axes", x: float, y: float, text: str) -> None:
    from matplotlib.patches import Rectangle

    for step in (0.8, 0.4, 0.0):
        axes.add_patch(Rectangle((x - 1.8 + step, y - 1.6 + step), 3.2, 3.2, facecolor="#EEF3F7", edgecolor=GREY,
                                 linewidth=0.6))  # fmt: skip
    axes.text(x - 0.2, y, text, fontsize=FONT_SIZE, ha="center", va="center", color=INK)


def _filter(axes: "Axes", x: float, y: float, group: FilterGroup, window: Sequence[int]) -> None:
    """Draw the window of the layer with the taps of a group in it."""
    from matplotlib.patches import Rectangle

    rows, columns = window
    color = ORANGE if prod(group.kernel) == 1 else BLUE if group.kernel == tuple(window) else GREEN
    inside = [
        range(embedding_offset(extent, taps, 1), embedding_offset(extent, taps, 1) + taps)
        for extent, taps in zip(window, group.kernel, strict=True)
    ]
    for row in range(rows):
        for column in range(columns):
            corner = (x + (column - columns / 2) * CELL, y + (rows / 2 - row - 1) * CELL)
            filled = row in inside[0] and column in inside[1]
            axes.add_patch(Rectangle(corner, CELL, CELL, facecolor=color if filled else "white", edgecolor=GREY,
                                     linewidth=0.5))  # fmt: skip


def _arrow(axes: "Axes", start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.annotate("", end, xytext=start, arrowprops={"arrowstyle": "-|>", "color": GREY, "linewidth": 0.7,
                                                     "mutation_scale": 6, "shrinkA": 0, "shrinkB": 0})  # fmt: skip


def _weights(plan: LayerPlan) -> int:
    return sum(plan.weights(index) for index in range(len(plan.stages)))
