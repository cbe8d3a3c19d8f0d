"""The confusion matrix as a plot."""

from collections.abc import Sequence
from pathlib import Path

from cruciform.plot.style import new_figure, save_picture

MOST_WRITTEN = 25  # classes, above which numbers and names would not be readable


def draw_confusion(confusion: Sequence[Sequence[int]], classes: Sequence[str], path: Path, *, title: str) -> None:
    """Draw a confusion matrix, normalized by row."""
    shares = [[count / max(1, sum(row)) for count in row] for row in confusion]
    small = len(classes) <= MOST_WRITTEN
    side = 2.6 + 0.42 * len(classes) if small else 9.0
    figure, axes = new_figure(side + 0.8, side)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    if small:
        places = list(range(len(classes)))
        axes.set_xticks(places, classes, rotation=45, ha="right")
        axes.set_yticks(places, classes)
        for i, row in enumerate(shares):
            for j, share in enumerate(row):
                if share >= 0.005:
                    color = "white" if share > 0.55 else "black"
                    axes.text(j, i, f"{share:.0%}", ha="center", va="center", fontsize=7, color=color)
    axes.set_xlabel("predicted class")
    axes.set_ylabel("true class")
    axes.set_title(title)
    save_picture(figure, path)
