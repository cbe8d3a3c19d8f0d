"""Image-access maps: which pixels of the input each pixel of the output reads, and by which weight."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from cruciform.plot.style import FONT_SIZE, INK, PAGE_WIDTH, add_source, empty_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class AccessMap(NamedTuple):
    """A map.

    Attributes:
        title: What layer it is of.
        weights: A row for each pixel of the output: the number of the weight by which it reads each pixel of the
            input, or None where it does not.
        distinct: How many weights there are.
    """

    title: str
    weights: Sequence[Sequence[int | None]]
    distinct: int

    @property
    def connections(self) -> int:
        """How many pairs of pixels are connected."""
        return sum(weight is not None for row in self.weights for weight in row)


def draw_connections(maps: Sequence[AccessMap], *, source: str) -> "Figure":
    """Draw maps side by side, colors standing for weights."""
    figure = empty_figure(PAGE_WIDTH, 2.55)
    found = figure.subplots(1, len(maps), squeeze=False)[0]
    for axes, one in zip(found, maps, strict=True):
        last = max(1, one.distinct - 1)
        shades = [[float("nan") if weight is None else weight / last for weight in row] for row in one.weights]
        picture = axes.imshow(
            shades, cmap="viridis", vmin=0, vmax=1.12, interpolation="nearest"
        )  # yellow fades in print
        axes.set_title(one.title, fontsize=FONT_SIZE + 1)
        axes.set_xlabel(
            f"input pixel\n{one.connections:,} connections,\n{one.distinct:,} weights", fontsize=FONT_SIZE, color=INK
        )
        axes.set_xticks([0, len(one.weights) - 1], ["1", str(len(one.weights))], fontsize=FONT_SIZE)
        axes.set_yticks([0, len(one.weights) - 1], ["1", str(len(one.weights))], fontsize=FONT_SIZE)
    found[0].set_ylabel("output pixel", fontsize=FONT_SIZE)
    bar = figure.colorbar(picture, ax=list(found), orientation="vertical", aspect=24, shrink=0.75, pad=0.01)
    bar.ax.set_ylim(0, 1)
    bar.set_ticks([0, 1], labels=["first", "last"])
    bar.ax.tick_params(labelsize=FONT_SIZE)
    bar.set_label("weight of the layer", fontsize=FONT_SIZE)
    add_source(figure, source)
    return figure
