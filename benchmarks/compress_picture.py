"""Draws docs/compress.png: accuracy lost against the fraction of the original's time, from results/ alone.

python benchmarks/compress_picture.py
"""

import json
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cruciform.plot.style import BLUE, GREEN, GREY, ORANGE, PURPLE, add_source, new_figure, print_axes, save_picture

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "compress.png"
NETWORK = "cifar_fast"
UNTUNED = {"ours": ("compress, no training", BLUE, "o-"), "svd": ("SVD of the weights, no training", ORANGE, "s-")}
TUNED = {
    "ours": ("compress, fine-tuned", BLUE, "o--"),
    "svd": ("SVD of the weights, fine-tuned", ORANGE, "s--"),
    "pruning": ("channels pruned, fine-tuned", GREEN, "^--"),
    "narrow": ("narrower, from scratch", PURPLE, "D--"),
}
Points = dict[str, list[tuple[float, float]]]


def untuned(details: dict[str, Any], contestant: str) -> Points:
    """Return the time and the points lost of every seed, by budget."""
    points: Points = {}
    for key, row in details.items():
        if key.startswith(f"{NETWORK}-"):
            for budget, found in row["budgets"].items():
                lost = row["dense"]["flip_tta"] - found[contestant]["flip_tta"]
                points.setdefault(budget, []).append((found[contestant]["share"], lost))
    return points


def tuned(details: dict[str, Any], contestant: str) -> Points:
    """Return the same of networks that were fine-tuned or trained from scratch."""
    points: Points = {}
    for key, row in details.items():
        network, _, budget, own = key.split("-")
        if network == NETWORK and own == contestant:
            points.setdefault(budget, []).append((row["share"], row["dense"]["flip_tta"] - row["flip_tta"]))
    return points


def main() -> None:
    figure, axes = new_figure(7.0, 4.6)
    axes.axhline(0, color=GREY, linewidth=0.8)
    details = _details("compress")["networks"]
    drawn = [(UNTUNED[name], untuned(details, name)) for name in UNTUNED]
    rivals = _details("compress-rivals")
    drawn += [(TUNED[name], tuned(rivals, name)) for name in TUNED]
    for (label, color, mark), points in drawn:
        ordered = sorted(points.values())
        if not ordered:
            continue
        shares, losses = ([[one[part] for one in seeds] for seeds in ordered] for part in (0, 1))
        hollow = "white" if "--" in mark else color
        axes.errorbar(
            _means(shares), _means(losses), yerr=[statistics.stdev(seeds) if len(seeds) > 1 else 0 for seeds in losses],
            fmt=mark, color=color, markerfacecolor=hollow, capsize=3, linewidth=1.2, label=label,
        )  # fmt: skip
    axes.invert_yaxis()
    axes.grid(axis="y", linewidth=0.4)
    axes.legend(loc="lower right", fontsize="small", framealpha=0.85, edgecolor="none")
    title = f"{NETWORK} on CIFAR-10: accuracy lost at a fraction of its time"
    print_axes(axes, x="measured time / time of the original (ONNX Runtime)", y="points of accuracy lost", title=title)
    add_source(figure, "Test images, flip TTA; one thread, batch size 1; bars: ± one standard deviation over seeds.")
    save_picture(figure, PICTURE)


def _details(name: str) -> dict[str, Any]:
    path = ROOT / "results" / f"{name}.json"
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))["details"] if path.is_file() else {}
    return found


def _means(values: Iterable[list[float]]) -> list[float]:
    return [statistics.mean(seeds) for seeds in values]


if __name__ == "__main__":
    main()
