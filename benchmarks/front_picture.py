"""Draw docs/front.png: accuracy over the fraction of the dense network's time, from results/front.json alone.

python benchmarks/front_picture.py
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from front_networks import FULL_NETWORK
from front_points import FrontPoint, read_lines
from front_runs import CLASSES
from front_summary import find_means, is_ours
from front_times import EQUAL_TIME, milliseconds

from cruciform.plot.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PAGE_WIDTH,
    PURPLE,
    SKY,
    add_legend,
    add_source,
    empty_figure,
    print_axes,
    save_picture,
)
from cruciform.training.experiments.race import Finish

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROOT = Path(__file__).parents[1]
RESULT, PICTURE = ROOT / "results" / "front.json", ROOT / "docs" / "front.png"


class Look(NamedTuple):
    """How a line is drawn.

    Attributes:
        label: In the legend.
        color: Of the line and its marks.
        mark: Of each network.
        dash: Of the line.
    """

    label: str
    color: str
    mark: str
    dash: str = "-"


LOOKS = {
    "cross": Look("cross", BLUE, "o"),
    "cross_warm": Look("cross, warm-started", BLUE, "o", "--"),
    "lr3": Look("lr, 3 layers a block", ORANGE, "s"),
    "lr3_warm": Look("lr, warm-started", ORANGE, "s", "--"),
    "dense": Look("dense, narrower", INK, "D"),
    "resolution": Look("dense, smaller images", GREY, "X"),
    "grouped_2": Look("2 groups", GREEN, "^"),
    "grouped_4": Look("4 groups", GREEN, "v", ":"),
    "separable": Look("depthwise separable", PURPLE, "P"),
    "bottleneck": Look("bottleneck", SKY, "h"),
}
"""In the order of the legend, ours first."""
SOURCE = (
    "Validation images, flip TTA, mean over seeds; bars: ± one std over seeds; lines: 75, 50 and 33 % of the dense "
    "network's MACs. Time: ONNX Runtime, one thread, batch size 1, the fastest form of each network. "
    "python benchmarks/front.py"
)


def draw_front(details: Mapping[str, Any]) -> "Figure":
    """Draw the details of results/front.json: a panel for each data set that has trained and timed networks.

    Raises:
        ValueError: No network is both trained and timed, or the dense network is not timed.
    """
    times = milliseconds(details["times"].get(EQUAL_TIME))
    means = find_means([Finish.from_dict(run) for run in details["runs"]])
    panels = {data_set: found for data_set in CLASSES if (found := read_lines(data_set, means, times))}
    if FULL_NETWORK.name not in times or not panels:
        raise ValueError("no network is trained and timed yet beside the dense one")
    figure = empty_figure(PAGE_WIDTH, 4.1)
    every = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (data_set, found) in zip(every, panels.items(), strict=True):
        for line in LOOKS:
            if line in found:
                _draw_line(axes, line, found[line], times[FULL_NETWORK.name])
        axes.grid(linewidth=0.3, color="#DDDDDD")
        axes.set_axisbelow(True)
        title = f"{CLASSES[data_set]} classes ({data_set})"
        print_axes(axes, x="measured time / time of the dense network", y="top-1 accuracy, %", title=title)
    fullest = max(range(len(every)), key=lambda index: len(list(panels.values())[index]))
    add_legend(figure, every[fullest], columns=5)
    add_source(figure, SOURCE)
    return figure


def _draw_line(axes: "Axes", line: str, points: Sequence[FrontPoint], dense_time: float) -> None:
    """Draw a line, ours thicker and above the others."""
    look, ours = LOOKS[line], is_ours(line)
    axes.errorbar(
        [point.milliseconds / dense_time for point in points],
        [point.accuracy.value for point in points],
        yerr=[point.std or 0.0 for point in points],
        color=look.color, marker=look.mark, linestyle=look.dash, label=look.label,
        markerfacecolor="white" if line.endswith("_warm") else look.color,
        linewidth=2.0 if ours else 0.9, markersize=6.0 if ours else 4.5, alpha=1.0 if ours else 0.85,
        elinewidth=0.9, capsize=2.0, zorder=4 if ours else 3,
    )  # fmt: skip


def main() -> None:
    """Draw the picture where there is something to draw."""
    try:
        if not RESULT.is_file():
            raise ValueError("there is no result yet: run python benchmarks/front.py train, and speed")
        save_picture(draw_front(json.loads(RESULT.read_text("utf-8"))["details"]), PICTURE)
    except ValueError as error:
        print(f"{PICTURE.name} is not drawn: {error}")


if __name__ == "__main__":
    main()
