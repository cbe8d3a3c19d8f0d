"""How all pictures look, and the one place that imports matplotlib."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from cruciform.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Told apart also in print and by colour-blind eyes (Okabe and Ito).
BLUE: Final = "#0072B2"
ORANGE: Final = "#D55E00"
GREEN: Final = "#009E73"
GREY: Final = "#8A8A8A"
BAND: Final = "#DCEBDC"


def new_figure(width: float, height: float) -> "tuple[Figure, Axes]":
    """Returns a figure, in inches, that is drawn without a screen."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("pictures need matplotlib; install it with: pip install 'cruciform[plot]'") from error
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def save(figure: "Figure", path: Path) -> None:
    """Writes the figure in the format of the path's ending."""
    figure.savefig(path, dpi=160)
