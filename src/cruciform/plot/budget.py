"""Plots of a budget: the Pareto front, and the time of every layer dense and as chosen."""

from collections.abc import Sequence
from pathlib import Path

from cruciform.plot.style import BLUE, GREEN, GREY, ORANGE, new_figure, save_picture


def draw_front(
    points: Sequence[tuple[float, float]], chosen: tuple[float, float], limit: float, path: Path, *, unit: str
) -> None:
    """Draw (cost, value) of the best choices, the chosen one, and the budget."""
    figure, axes = new_figure(6.4, 4.2)
    axes.plot([x for x, _ in points], [y for _, y in points], "-o", color=BLUE, markersize=3, label="best choices")
    axes.plot(*chosen, "o", color=ORANGE, markersize=8, label="chosen")
    axes.axvline(limit, color=GREY, linestyle="--", linewidth=0.9, label="budget")
    axes.set_xlabel(f"cost of the network ({unit})")
    axes.set_ylabel("value: fraction of kernel energy kept (a proxy)")
    axes.set_title("Best value for every cost, and the choice within the budget")
    axes.legend(fontsize="small", framealpha=0.85, edgecolor="none", loc="lower right")
    save_picture(figure, path)


def draw_layers(layers: Sequence[tuple[str, str, float, float]], path: Path) -> None:
    """Draw (name, scheme, dense milliseconds, chosen milliseconds) of every layer as bars."""
    figure, axes = new_figure(7.2, 1.2 + 0.24 * len(layers))
    places = range(len(layers))
    axes.barh([place - 0.2 for place in places], [row[2] for row in layers], 0.4, color=GREY, label="dense")
    for label, color, dense in (("chosen: low-rank", GREEN, False), ("chosen: kept dense", BLUE, True)):
        some = [(place, row[3]) for place, row in zip(places, layers, strict=True) if (row[1] == "full") == dense]
        if some:
            axes.barh([place + 0.2 for place, _ in some], [ms for _, ms in some], 0.4, color=color, label=label)
    for place, (_, scheme, _, milliseconds) in zip(places, layers, strict=True):
        axes.annotate(scheme, (milliseconds, place + 0.2), textcoords="offset points", xytext=(3, 0), va="center",
                      fontsize=6)  # fmt: skip
    axes.set_yticks(list(places), [row[0] for row in layers], fontsize=7)
    axes.invert_yaxis()
    axes.set_title("Time of every layer, dense and as chosen")
    axes.set_xlabel("time of the layer in the network (ms)")
    axes.legend(fontsize="small", framealpha=0.85, edgecolor="none")
    save_picture(figure, path)
