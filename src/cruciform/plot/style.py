"""The style of all plots, and the one module that imports matplotlib."""

import textwrap
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cruciform.errors import MissingExtraError, OptionError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Figure  # noqa: PLC0414 - other rooms name it from here

# Told apart also in print and by color-blind eyes (Okabe and Ito).
BLUE: Final = "#0072B2"
ORANGE: Final = "#D55E00"
GREEN: Final = "#009E73"
GREY: Final = "#8A8A8A"
SKY: Final = "#56B4E9"
PURPLE: Final = "#CC79A7"
BAND: Final = "#DCEBDC"
INK: Final = "#222222"

# For print: a column or the whole width of a page, in inches, and the least size of letters, in points.
COLUMN: Final = 3.5
PAGE_WIDTH: Final = 7.0
FONT_SIZE: Final = 7.0

PICTURE_ENDINGS = (".png", ".svg", ".pdf")
MISSING = "plots need matplotlib: pip install 'cruciform[plot]'"


def new_figure(width: float, height: float) -> "tuple[Figure, Axes]":
    """Return a figure, in inches, that is drawn without a screen."""
    figure = empty_figure(width, height)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def empty_figure(width: float, height: float) -> "Figure":
    """Return a figure without axes."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError(MISSING) from error
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def print_axes(axes: "Axes", *, x: str, y: str, title: str = "") -> None:
    """Label the axes, in a font size for print."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=FONT_SIZE)
    axes.set_xlabel(x, fontsize=FONT_SIZE + 1)
    axes.set_ylabel(y, fontsize=FONT_SIZE + 1)
    if title:
        axes.set_title(title, fontsize=FONT_SIZE + 1)


def add_source(figure: "Figure", text: str) -> None:
    """Add a caption with the source of the numbers."""
    letters = int(figure.get_figwidth() * 72 / (0.56 * FONT_SIZE))  # a letter is about half as wide as it is high
    lines = textwrap.fill(text, letters, break_long_words=False)
    figure.set_layout_engine("constrained", w_pad=0.06, h_pad=0.06)  # inches: titles need not touch the edge
    figure.supxlabel(lines, x=0.01, ha="left", fontsize=FONT_SIZE, color="#555555", linespacing=1.25)


def add_legend(figure: "Figure", axes: "Axes", *, columns: int = 3) -> None:
    """Put the legend above the axes, where it can't cover anything."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=columns, fontsize=FONT_SIZE, frameon=False)


def check_picture(path: Path) -> None:
    """Raise if a plot can't be written there, before hours of work for it."""
    if path.suffix.lower() not in PICTURE_ENDINGS:
        raise OptionError(f"{path}: a plot must end in {', '.join(PICTURE_ENDINGS)}")
    if find_spec("matplotlib") is None:
        raise MissingExtraError(MISSING)


def save_picture(figure: "Figure", path: Path) -> None:
    """Write the figure in the format of the path's ending; create its directory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=160)
