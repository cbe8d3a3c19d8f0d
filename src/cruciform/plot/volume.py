"""A plan for volumes as a picture: the window of each filter group, with its taps as cubes."""

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

from cruciform.plan import FilterGroup, LayerPlan, embedding_offset
from cruciform.plot.style import BLUE, FONT_SIZE, GREEN, GREY, INK, ORANGE, PAGE_WIDTH, PURPLE, add_source, empty_figure
from cruciform.spec import join_sizes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AXIS_COLORS = (BLUE, ORANGE, GREEN, PURPLE)
SHRINK = 0.08  # of a cube on each side, so that neighbors are separated


def draw_volume_plan(plan: LayerPlan, *, source: str) -> "Figure":
    """Draw the dense window, the groups of the first stage, and all of them put together.

    Args:
        plan: Of a 3-D layer.
        source: What it is and which command drew it.
    """
    groups = plan.stages[0].groups
    dense = FilterGroup(plan.spec.kernel, plan.spec.out_channels)
    titles = ["dense", *[f"{group.filters} filters" for group in groups], "combined"]
    pictures: list[Sequence[tuple[FilterGroup, str]]] = [[(dense, GREY)]]
    colored = list(zip(groups, AXIS_COLORS, strict=False))
    pictures += [[pair] for pair in colored]
    pictures.append(colored)
    figure = empty_figure(PAGE_WIDTH, 2.35)
    for number, (title, shown) in enumerate(zip(titles, pictures, strict=True), start=1):
        axes: Any = figure.add_subplot(1, len(pictures), number, projection="3d")
        _draw_window(axes, plan.spec.kernel, shown)
        shape = join_sizes(shown[0][0].kernel) if len(shown) == 1 else "a cross" if _is_cross(groups) else "the basis"
        taps = sum(prod(group.kernel) * group.filters for group, _ in shown)
        share = taps / (prod(dense.kernel) * dense.filters)
        axes.set_title(f"{title}\n{shape}", fontsize=FONT_SIZE + 1, color=INK, y=1.0)
        axes.text2D(0.5, -0.09, f"{100 * share:.3g} % of the weights", fontsize=FONT_SIZE, color=INK, ha="center",
                    transform=axes.transAxes)  # fmt: skip
    add_source(figure, source)
    return figure


def _is_cross(groups: Sequence[FilterGroup]) -> bool:
    return all(sum(extent > 1 for extent in group.kernel) == 1 for group in groups)


def _draw_window(axes: Any, window: Sequence[int], groups: Sequence[tuple[FilterGroup, str]]) -> None:
    """Draw the edges of a window and the taps of some groups in it; the last group is seen where they meet."""
    taps: dict[tuple[int, ...], str] = {}
    for group, color in groups:
        starts = [embedding_offset(*pair, 1) for pair in zip(window, group.kernel, strict=True)]
        ranges = [range(start, start + count) for start, count in zip(starts, group.kernel, strict=True)]
        taps |= dict.fromkeys(product(*ranges), color)
    if len(groups) > 1:  # where all meet, none is on top
        middle = tuple((extent - 1) // 2 for extent in window)
        taps[middle] = INK
    for corner, color in taps.items():
        sides = [1 - 2 * SHRINK] * 3
        axes.bar3d(*[place + SHRINK for place in corner], *sides, color=color, edgecolor="white", linewidth=0.3,
                   shade=True, alpha=0.25 if color == GREY else 1.0)  # fmt: skip
    for start, end in _edges(window):
        axes.plot(*zip(start, end, strict=True), color=GREY, linewidth=0.5)
    axes.set_box_aspect(tuple(window), zoom=1.1)
    axes.view_init(elev=22, azim=-58)
    axes.set_axis_off()


def _edges(window: Sequence[int]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    corners = list(product(*[(0, extent) for extent in window]))
    return [(a, b) for a in corners for b in corners if a < b and sum(x != y for x, y in zip(a, b, strict=True)) == 1]
