"""The doctor's findings as a picture: each block's gradient ratio, and the gradient's level on its way back."""

from pathlib import Path

from cruciform.measure.gradients import Diagnosis
from cruciform.plot.style import BAND, BLUE, GREEN, GREY, ORANGE, new_figure, save


def draw_diagnosis(diagnosis: Diagnosis, path: Path, *, title: str) -> None:
    """Draws the ratios along the deepest path, and what is left of the gradient at each block."""
    blocks = [block for block in diagnosis.blocks if block.on_path]
    names = [block.name.rpartition(".")[2] if len(blocks) <= 20 else str(n) for n, block in enumerate(blocks, 1)]
    places = list(range(len(blocks)))
    figure, axes = new_figure(max(6.4, 0.42 * len(blocks)), 4.2)
    if not diagnosis.trained:
        label = f"trainable: {diagnosis.low:.2g} to {diagnosis.high:.2g}"
        axes.axhspan(diagnosis.low, diagnosis.high, color=BAND, label=label)
    axes.axhline(1, color=GREY, linewidth=0.8)
    axes.plot(places, [b.gradient_ratio for b in blocks], "o", color=BLUE, label="one block: gradient in / out")
    colour = {True: GREEN, False: ORANGE, None: GREY}[diagnosis.trainable]
    axes.plot(
        places, [b.gradient_level for b in blocks], "-s", color=colour, markersize=4,
        label="gradient at the block's output / at the last one's",
    )  # fmt: skip
    axes.plot(
        [places[0]], [diagnosis.gradient_over_depth], "*", color=colour, markersize=15,
        label=f"gradient over depth: {diagnosis.gradient_over_depth:.2g}",
    )  # fmt: skip
    axes.set_yscale("log")
    axes.set_xticks(places, names, rotation=45 if len(blocks) > 9 else 0)
    axes.set_xlabel("block, in the order of the network")
    axes.set_ylabel("ratio of gradient variances")
    axes.set_title(f"{title}: {diagnosis.verdict.partition(':')[0] if diagnosis.trained else diagnosis.verdict}")
    axes.legend(fontsize="small", framealpha=0.85, edgecolor="none")
    save(figure, path)
