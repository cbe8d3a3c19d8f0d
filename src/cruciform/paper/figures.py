"""The paper's figures from our own numbers: a function for each, found by its registry.

A figure is drawn from data: plans, counts of our own networks, published accuracies and timings, files of results.
A figure without data is skipped, with the reason.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from torch import nn

from cruciform.files import read_text
from cruciform.measure.filters import LayerFilters, network_filters
from cruciform.paper.access import dense_access, group_access
from cruciform.paper.measured import OwnPoint, TablePoint, own_points, table_points
from cruciform.paper.published import published_timings, rivals
from cruciform.paper.tables import CheckedRow, check_tables
from cruciform.paper.timings import TIMINGS_FILE as TIMINGS
from cruciform.paper.timings import count_groups, timed_parts
from cruciform.plan import FilterGroup
from cruciform.plot.connections import draw_connections
from cruciform.plot.filters import draw_cross
from cruciform.plot.methods import Method, draw_methods
from cruciform.plot.style import save_picture
from cruciform.plot.timings import draw_timings
from cruciform.plot.tradeoff import Panel, Spot, draw_tradeoff
from cruciform.registry import Registry
from cruciform.schemes import make_plan
from cruciform.spec import ConvSpec
from cruciform.text.wording import plural

if TYPE_CHECKING:
    from cruciform.plot.style import Figure

PAPER = "Ioannou et al., ICLR 2016"
BASELINES = {"vgg-11", "gmp", "googlenet", "nin"}
CIFAR10, IMAGENETTE, TABLE = "cifar10.json", "imagenette.json", "tiny-vgg.json"
WIDTHS = "dense, at several widths"
SAME = 0.02  # counts that differ by less are one point in a picture


@dataclass(frozen=True)
class Material:
    """What figures are drawn from.

    Attributes:
        results: The folder of measured results.
        model: A trained network for the figure of its filters.
        model_name: What it is called.
    """

    results: Path
    model: nn.Module | None = None
    model_name: str = ""

    @cached_property
    def rows(self) -> list[CheckedRow]:
        """The published rows with our counts."""
        return list(check_tables())


class LeftOut(Exception):  # noqa: N818 - nothing went wrong
    """A figure has no data; the message has what it needs."""


@dataclass(frozen=True)
class Drawn:
    """The result of drawing a figure.

    Attributes:
        name: Its name.
        path: The file; None where it was left out.
        note: What a reader must know: what is not in it, or why it was left out.
    """

    name: str
    path: Path | None
    note: str


DrawFigure: TypeAlias = "Callable[[Material], tuple[Figure, str]]"
FIGURES: Registry[DrawFigure] = Registry("figure")


def draw_figures(
    material: Material, folder: Path, *, names: Sequence[str] = (), ending: Literal["png", "svg", "pdf"] = "png"
) -> Iterator[Drawn]:
    """Draw figures into a folder, all of them or those that are named, and yield the result of each.

    Args:
        material: What to draw from.
        folder: Where to; made where it is missing.
        names: Which; all where empty.
        ending: The format.
    """
    chosen = [(name, FIGURES.get(name)) for name in names or FIGURES.names()]
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in chosen:
        try:
            figure, note = draw(material)
        except LeftOut as reason:
            yield Drawn(name, None, str(reason))
            continue
        path = folder / f"{name}.{ending}"
        save_picture(figure, path)
        yield Drawn(name, path, note)


@FIGURES.register("connections")
def connections(material: Material) -> "tuple[Figure, str]":
    """Which pixels a layer connects: fully connected, 3×3, 3×1 and 1×3."""
    del material
    size, window = 6, (3, 3)
    groups = [FilterGroup(window, 1), *make_plan(ConvSpec(1, 2, 3, padding=1), "lr").stages[0].groups]
    maps = [dense_access(size), *(group_access(group, window, size) for group in groups)]
    source = (
        f"A layer from a {size}×{size} image of one channel to one of the same size, zero padding; from plans "
        f"(cruciform.plan). A color is a weight; white: not connected. After figure 1 of {PAPER}."
    )
    return draw_connections(maps, source=source), ""


@FIGURES.register("methods")
def methods(material: Material) -> "tuple[Figure, str]":
    """What each scheme computes instead of a 3×3 layer."""
    del material
    spec = ConvSpec(64, 64, 3, padding=1)
    titles = {
        "full": "full rank", "sf": "sequential\nseparable (sf)", "lr": "low rank (lr)", "lr-join": "low rank,\njoined",
        "lr-join-wfull": "joined, a quarter\nof full rank",
    }  # fmt: skip
    source = (
        "Plans of cruciform's schemes for a 3×3 layer from 64 to 64 channels; MACs for one pixel of the output, "
        f"biases left out. After figure 2 of {PAPER}."
    )
    return draw_methods([Method(title, make_plan(spec, name)) for name, title in titles.items()], source=source), ""


@FIGURES.register("vgg-ilsvrc")
def vgg_ilsvrc(material: Material) -> "tuple[Figure, str]":
    """MACs against top-5 error of the VGG networks on ILSVRC."""
    source = f"MACs: our counts for one 224×224 image. Errors: published, single runs, center crop ({PAPER})."
    return _with_imagenette(material, _panel(material, "vgg_ilsvrc", "ILSVRC top-5 error, %"), source, "vgg")


@FIGURES.register("places")
def places(material: Material) -> "tuple[Figure, str]":
    """MACs against top-5 error of the VGG networks on MIT Places."""
    source = (
        "MACs: our counts for one 224×224 image at stride 2 and 205 classes; the published ones are those for ILSVRC "
        f"divided by 4, of gmp-sf without global pooling. Errors: published, single runs ({PAPER})."
    )
    return draw_tradeoff([_panel(material, "places", "MIT Places top-5 error, %")], source=source), ""


@FIGURES.register("googlenet")
def googlenet(material: Material) -> "tuple[Figure, str]":
    """MACs against top-5 error of the GoogLeNets on ILSVRC."""
    source = (
        "MACs: our counts of the deployed networks for one 224×224 image; the published ones have both auxiliary "
        f"heads and, of -lr, larger maps. Errors: published, single runs ({PAPER})."
    )
    return _with_imagenette(material, _panel(material, "googlenet", "ILSVRC top-5 error, %"), source, "googlenet")


@FIGURES.register("nin")
def nin(material: Material) -> "tuple[Figure, str]":
    """MACs against error of the Networks-in-Network on CIFAR-10."""
    panel = _panel(material, "nin_cifar10", "CIFAR-10 error, %", unit=1e6)
    own = [point for point in own_points(material.results / CIFAR10) if point.network.startswith("nin")]
    source = (
        "MACs: our counts for one 32×32 image; the published ones are for 30×30 crops. Errors: published, single "
        f"runs ({PAPER}); the author's later runs of this network vary by 0.13 points from seed to seed."
    )
    if not own:
        return draw_tradeoff([panel], source=source), f"no runs of our own: {material.results / CIFAR10} has none"
    panel.series["our own runs"] = _spots(own, 1e6)
    return draw_tradeoff([panel], source=f"{source} {_own_source(own, CIFAR10)}"), _own_note(own, CIFAR10)


@FIGURES.register("vgg-table")
def vgg_table(material: Material) -> "tuple[Figure, str]":
    """Top-1 error of the VGG networks that we trained, against MACs and milliseconds, beside the published ones."""
    path = material.results / TABLE
    if not path.is_file():
        raise LeftOut(f"no runs of our own: {path} is missing; python benchmarks/tiny_vgg.py table makes them")
    result = json.loads(read_text(path))
    points = table_points(result, path)
    timed = [one for one in points if one.milliseconds is not None]
    error = "top-1 error, %"

    def series(of: Sequence[TablePoint], cost: Callable[[TablePoint], float]) -> dict[str, Sequence[Spot]]:
        return _by_kind(
            {one.network: Spot(_in_table(one.network), cost(one), 100 - one.accuracy, std=one.std) for one in of}
        )

    panels = [Panel(series(points, lambda one: one.mmacs), "MMACs for an image", error, "ours: MACs", joined=WIDTHS)]
    if timed:
        costs = series(timed, lambda one: one.milliseconds or 0.0)
        panels.append(Panel(costs, "ms for an image, one thread", error, "ours: deployed", joined=WIDTHS))
    published = {
        row.model: Spot(_in_table(row.model), checked.true_macs / 1e9, 100 * (1 - row.top1))
        for checked in material.rows
        if (row := checked.published).table == "vgg_ilsvrc" and row.model != "vgg11"
    }
    panels.append(Panel(_by_kind(published), "GMACs for an image", "ILSVRC top-1 error, %", "the paper: MACs"))
    seeds = sorted({one.seeds for one in points})
    source = (
        f"Ours: half the width, batch norm, 100 classes of 48×48 photographs, one recipe for all; means over "
        f"{_span(seeds)} {'seed' if seeds == [1] else 'seeds'}, bars: ± std; {result['hardware']['processor']} "
        f"(results/{TABLE}). The paper: {PAPER}, 1,000 classes, 224×224, single runs; MACs: our counts."
    )
    note = f"with {plural(len(points), 'network')} of our own from {TABLE}"
    note += "" if len(timed) == len(points) else f", {len(points) - len(timed)} of them without times"
    return draw_tradeoff(panels, source=source, height=3.8, first=1.0), note


@FIGURES.register("state-of-the-art-macs")
def state_of_the_art_macs(material: Material) -> "tuple[Figure, str]":
    """MACs against top-5 error, beside the networks of the day."""
    return _state_of_the_art(material, "macs"), ""


@FIGURES.register("state-of-the-art-params")
def state_of_the_art_params(material: Material) -> "tuple[Figure, str]":
    """Parameters against top-5 error, beside the networks of the day."""
    return _state_of_the_art(material, "params"), ""


@FIGURES.register("timings")
def timings(material: Material) -> "tuple[Figure, str]":
    """MACs of each filter group of gmp-lr, and how long they take."""
    published = published_timings()
    counted = count_groups()
    rows: dict[str, tuple[str, Sequence[float]]] = {
        "multiply-accumulates, our count": ("MMACs", [macs / 1e6 for _, macs in counted]),
        "Caffe on a CPU, published": ("ms", [one.cpu_ms for one in published]),
        "Caffe on a GPU, published": ("ms", [one.gpu_ms for one in published]),
    }
    path = material.results / TIMINGS
    source = (
        f"MACs for one 224×224 image. Caffe's times: forward pass, from {PAPER}, which gives neither the batch size "
        "nor the machine: compare shapes, not heights."
    )
    if not path.is_file():
        note = f"no times of our own: {path} is missing; cruciform paper timings measures them"
        return draw_timings([name for name, _ in counted], rows, source=source), note
    result = json.loads(read_text(path))
    details = result["details"]
    if details["input_size"] != timed_parts()[0].size:
        note = f"no times of our own: those of {path} are for images of {details['input_size']} pixels"
        return draw_timings([name for name, _ in counted], rows, source=source), note
    rows[f"ours, {details['target']}, one thread"] = ("ms", [one["milliseconds"] for one in details["layers"]])
    ours = f" Ours: batch {details['batch']}, {result['hardware']['processor']}, {path.name} of {result['date']}."
    return draw_timings([name for name, _ in counted], rows, source=source + ours), ""


@FIGURES.register("filters")
def filters(material: Material) -> "tuple[Figure, str]":
    """Learned basis filters of one layer, and the kernels that they add up to."""
    if material.model is None:
        raise LeftOut("it needs a trained network: a run, or a model directory")
    shown = _most_telling(network_filters(material.model))
    source = (
        f"{material.model_name}, layer {shown.name}: {shown.plan}. The filters with the most energy; of each the "
        f"slice of the input channel with the most. After figure 3 of {PAPER}."
    )
    return draw_cross(shown, source=source), f"layer {shown.name}"


def _by_kind(spots: Mapping[str, Spot]) -> dict[str, Sequence[Spot]]:
    """Return the dense networks, which differ in width only, and the others."""
    dense = [name for name in spots if name == "vgg11_gmp" or name.startswith("vgg11_gmp_narrow")]
    return {
        WIDTHS: [spots[name] for name in dense],
        "basis filters": [spot for name, spot in spots.items() if name not in dense],
    }


def _in_table(network: str) -> str:
    """Return the name of a network in a narrow panel."""
    short = network.removeprefix("vgg11_gmp").removeprefix("_").replace("_", "-") or "gmp"
    return "gmp, narrow" if short.startswith("narrow") else short


def _panel(material: Material, table: str, error: str, *, unit: float = 1e9) -> Panel:
    rows = [row for row in material.rows if row.published.table == table]
    baselines = [_spot(row, unit) for row in rows if row.published.network in BASELINES]
    others = [_spot(row, unit) for row in rows if row.published.network not in BASELINES]
    prefix = "G" if unit == 1e9 else "M"
    return Panel({"baseline": baselines, "basis filters": others}, f"{prefix}MACs for an image", error)


def _with_imagenette(material: Material, panel: Panel, source: str, family: str) -> "tuple[Figure, str]":
    """Draw a panel, and beside it what we trained ourselves: on another task, so not on the same axes."""
    path = material.results / IMAGENETTE
    own = [point for point in own_points(path) if point.network.startswith(family)]
    if not own:
        return draw_tradeoff([panel], source=source), f"no runs of our own: {path} has none"
    beside = Panel(
        {"our own runs": _spots(own, 1e9)}, "GMACs for an image", "Imagenette top-1 error, %",
        "ours: another, easier task",
    )  # fmt: skip
    return draw_tradeoff([panel, beside], source=f"{source} {_own_source(own, IMAGENETTE)}"), _own_note(own, IMAGENETTE)


def _spot(row: CheckedRow, unit: float) -> Spot:
    published = row.published
    right = published.top1 if published.top5 is None else published.top5
    other = abs(row.true_macs - published.macs) > SAME * row.true_macs
    return Spot(
        published.network, row.true_macs / unit, 100 * (1 - right), published.macs / unit if other else None
    )  # fmt: skip


def _state_of_the_art(material: Material, what: Literal["macs", "params"]) -> "Figure":
    unit, cost = (1e9, "test-time GMACs (logarithmic)") if what == "macs" else (1e6, "million parameters (logarithmic)")
    groups = {"crop_mirror": "crops and horizontal flips only", "extra_augmentation": "with extra augmentation"}
    series: dict[str, Sequence[Spot]] = {}
    for group, label in groups.items():
        series[label] = [
            Spot(one.network, (one.test_macs if what == "macs" else one.params) / unit, 100 * (1 - one.top5))
            for one in rivals()
            if one.group == group
        ]
    gmp = next(row for row in material.rows if (row.published.table, row.published.network) == ("vgg_ilsvrc", "gmp"))
    series[groups["crop_mirror"]] = [*series[groups["crop_mirror"]], _cost_of(gmp, what, unit)]
    ours = [row for row in material.rows if row.published.table in ("vgg_ilsvrc", "googlenet")]
    series["basis filters (the paper)"] = [
        _cost_of(row, what, unit) for row in ours if row.published.network not in BASELINES
    ]
    views = "for all test-time views" if what == "macs" else "at test time"
    source = (
        f"ILSVRC 2012, single networks. Basis filters: our counts, published errors. Others: published, {views} "
        f"(data of {PAPER}; googlenet counted with its auxiliary heads)."
    )
    panel = Panel(series, cost, "ILSVRC top-5 error, %", logarithmic=True)
    return draw_tradeoff([panel], source=source, height=4.6)


def _cost_of(row: CheckedRow, what: Literal["macs", "params"], unit: float) -> Spot:
    cost = row.true_macs if what == "macs" else row.true_params
    return Spot(row.published.network, cost / unit, 100 * (1 - (row.published.top5 or 0)))


def _spots(points: Sequence[OwnPoint], unit: float) -> list[Spot]:
    # All by their optimizers where these differ: else one network's run by the better looks ahead of the other's.
    several = len({one.optimizer for one in points}) > 1
    return [
        Spot(f"{one.network}, ours{f' by {one.optimizer}' if several else ''}", one.macs / unit, 100 * one.error)
        for one in points
    ]


def _own_source(points: Sequence[OwnPoint], name: str) -> str:
    seeds = sorted({one.seeds for one in points})
    epochs = sorted({one.epochs for one in points})
    return (
        f"Our own runs: {_span(epochs)} epochs, means over {_span(seeds)} {'seed' if seeds == [1] else 'seeds'} "
        f"(results/{name})."
    )


def _own_note(points: Sequence[OwnPoint], name: str) -> str:
    return f"with {plural(len({one.network for one in points}), 'network')} of our own from {name}"


def _span(numbers: Sequence[int]) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"


def _most_telling(layers: Sequence[LayerFilters]) -> LayerFilters:
    """Return the first layer with a join, or else the first with groups side by side."""
    side_by_side = [one for one in layers if len(one.plan.stages[0].groups) > 1 and one.kernel is not None]
    if not side_by_side:
        raise LeftOut("the given network has no layer with several filter groups")
    return next((one for one in side_by_side if len(one.plan.stages) > 1), side_by_side[0])
