"""The doctor's findings as a plot: the gradient ratio of each block, and the gradient's level."""

from pathlib import Path

from cruciform.measure.gradients import Diagnosis
from cruciform.plot.style import BAND, BLUE, GREEN, GREY, ORANGE, new_figure, save_picture
from cruciform.text.wording import short_names

MOST_TICKS = 40  # along the axis; of more blocks, some are left out
LONGEST_LABEL = 9  # letters that stand upright beside one another


def draw_diagnosis(diagnosis: Diagnosis, path: Path, *, title: str) -> None:
    """Draw the ratios along the deepest path, and what is left of the gradient at each block."""
    blocks = [block for block in diagnosis.blocks if block.on_path]
    names, places = short_names([block.name for block in blocks]), list(range(len(blocks)))
    every = -(-len(blocks) // MOST_TICKS)
    figure, axes = new_figure(max(6.4, 0.42 * len(blocks)), 4.2)
    if not diagnosis.trained:
        label = f"trainable: {diagnosis.low:.2g} to {diagnosis.high:.2g}"
        axes.axhspan(diagnosis.low, diagnosis.high, color=BAND, label=label)
    axes.axhline(1, color=GREY, linewidth=0.8)
    axes.plot(
        places,
        [b.gradient_ratio for b in blocks],
        "o",
        color=BLUE,
        label="gradient ratio of the block (input / output)",
    )
    color = {True: GREEN, False: ORANGE, None: GREY}[diagnosis.trainable]
    axes.plot(
        places, [b.gradient_level for b in blocks], "-s", color=color, markersize=4,
        label="gradient at the block / at the last block",
    )  # fmt: skip
    axes.plot(
        [places[0]], [diagnosis.gradient_over_depth], "*", color=color, markersize=15,
        label=f"gradient over depth: {diagnosis.gradient_over_depth:.2g}",
    )  # fmt: skip
    axes.set_yscale("log")
    aslant = len(blocks) > 9 or max(map(len, names)) > LONGEST_LABEL
    axes.set_xticks(places[::every], names[::every], rotation=35 if aslant else 0, ha="right" if aslant else "center")
    axes.set_xlabel("block (input to output)")
    axes.set_ylabel("ratio of gradient variances (log scale)")
    axes.set_title(f"{title}\n{diagnosis.verdict.partition(':')[0] if diagnosis.trained else diagnosis.verdict}")
    axes.legend(fontsize="small", framealpha=0.85, edgecolor="none")
    save_picture(figure, path)
