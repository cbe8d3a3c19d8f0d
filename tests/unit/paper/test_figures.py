"""Every figure as a reader would judge it: nothing covered or cut off, letters large enough, axes and source named."""

import json
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from cruciform.errors import UnknownNameError
from cruciform.measure.record import record_result
from cruciform.nn.composite import CompositeConv
from cruciform.paper.access import dense_access, group_access
from cruciform.paper.figures import FIGURES, LeftOut, Material, draw_figures
from cruciform.paper.measured import own_points
from cruciform.paper.published import published_timings, rivals
from cruciform.plan import FilterGroup
from cruciform.schemes import make_plan
from cruciform.spec import ConvSpec
from cruciform.training.experiments.race import Finish


def finish(name: str, seed: int, top1: float, optimizer: str = "sgd") -> dict[str, Any]:
    recipe = {"model": {"name": name}, "epochs": 20, "optimizer": {"kind": optimizer}}
    curve = [{"epoch": 1, "seconds": 1.0, "top1": 0.1}, {"epoch": 20, "seconds": 9.0, "top1": top1}]
    return Finish(name, seed, 222_000_000, 9, 50_000, recipe, curve, {}).to_dict()


TRAINED = {  # MMACs, accuracy, std, milliseconds
    "vgg11_gmp": (64.6, 55.1, 0.4, 1.9), "vgg11_gmp_sf": (57.0, 53.9, 0.3, 2.2), "vgg11_gmp_lr": (21.8, 53.4, 0.4, 1.0),
    "vgg11_gmp_lr_2x": (25.1, 54.3, 0.3, 1.2), "vgg11_gmp_lr_join": (33.6, 53.8, 0.2, 1.3),
    "vgg11_gmp_lr_join_wfull": (50.7, 56.0, 0.4, 1.9), "vgg11_gmp_lr_lde": (7.5, 47.0, 0.5, 0.6),
    "vgg11_gmp_narrow_lr": (21.8, 52.2, 0.3, 0.8), "vgg11_gmp_narrow_wfull": (50.7, 54.7, 0.3, 1.6),
    "vgg11_gmp_lr_same_time": (21.8, 54.0, 0.3, 1.0),
}  # fmt: skip


def record_table(folder: Path, *, timed: bool = True, seeds: int = 3) -> None:
    summary: dict[str, float] = {}
    for name, (mmacs, accuracy, std, milliseconds) in TRAINED.items():
        summary |= {f"{name}_mmacs": mmacs, f"{name}_accuracy": accuracy, f"{name}_seeds": seeds}
        summary |= {f"{name}_accuracy_std": std} if seeds > 1 else {}
        summary |= {f"{name}_ms_b1": milliseconds} if timed else {}
    record_result(folder / "tiny-vgg.json", summary=summary, details={}, command="", n=seeds)


@pytest.fixture(scope="session")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    results = tmp_path_factory.mktemp("results")
    runs = [finish("nin", 0, 0.90), finish("nin", 1, 0.92), finish("cifar_fast", 0, 0.95)]
    record_result(results / "cifar10.json", summary={}, details=runs, command="", n=1)
    record_result(
        results / "imagenette.json",
        summary={},
        details=[finish("vgg11", 0, 0.8), finish("googlenet_lr", 0, 0.7)],
        command="",
        n=1,
    )
    record_table(results)
    layers = [{"layer": one.layer, "milliseconds": 1.0} for one in published_timings()]
    details = {"target": "torch", "batch": 1, "input_size": 224, "layers": layers}
    record_result(results / "paper-timings.json", summary={}, details=details, command="", n=1)
    torch.manual_seed(0)
    model = nn.Sequential(CompositeConv(make_plan(ConvSpec(3, 32, 3, padding=1), "lr-join")))
    made = Material(results, model, "a network")
    assert len(made.rows) == 18
    return made


def words(figure: Any) -> Iterator[Any]:
    """All words that a figure shows, with their places."""
    from matplotlib.text import Text

    ticks = [
        (tick, *sorted(axis.get_view_interval()))
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks())
    ]
    beyond = {id(label) for t, low, high in ticks for label in (t.label1, t.label2) if not low <= t.get_loc() <= high}
    for text in figure.findobj(Text):
        straight = text.get_rotation() in (0, 90)  # the boxes of slanting words overlap, the words do not
        if text.get_text().strip() and text.get_visible() and straight and id(text) not in beyond:
            box = text.get_window_extent(figure.canvas.get_renderer())
            yield text, box.padded(-0.6)  # neighbors may touch


@pytest.mark.parametrize("name", FIGURES.names())
def test_a_figure_can_be_read(name: str, material: Material) -> None:
    figure, _ = FIGURES.get(name)(material)
    figure.canvas.draw()
    found = list(words(figure))
    shown = [text.get_text() for text, _ in found]
    frame = figure.bbox
    for text, box in found:
        assert text.get_fontsize() >= 7, text
        assert box.x0 >= frame.x0 - 1, text
        assert box.x1 <= frame.x1 + 1, text
        assert box.y0 >= frame.y0 - 1, text
        assert box.y1 <= frame.y1 + 1, text
    covered = [(a.get_text(), b.get_text()) for (a, x), (b, y) in combinations(found, 2) if x.overlaps(y)]
    assert not covered
    assert figure.get_figwidth() in (3.5, 7.0)
    assert figure.get_supxlabel(), "a source line"
    if name not in ("methods", "filters"):  # a diagram and pictures have no axes
        assert any(axes.get_xlabel() for axes in figure.axes)
        assert any(axes.get_ylabel() for axes in figure.axes)
    assert len(shown) > 5


@pytest.mark.parametrize("kernel", [5, 7])
def test_many_groups_and_large_windows_leave_room_for_their_words(kernel: int, tmp_path: Path) -> None:
    layer = CompositeConv(make_plan(ConvSpec(3, 32, kernel, padding=kernel // 2), "lr-join-wfull"))
    figure, _ = FIGURES.get("filters")(Material(tmp_path, nn.Sequential(layer), "a network"))
    figure.canvas.draw()
    found = list(words(figure))
    assert not [(a.get_text(), b.get_text()) for (a, x), (b, y) in combinations(found, 2) if x.overlaps(y)]
    assert all(figure.bbox.x0 - 1 <= box.x0 and box.x1 <= figure.bbox.x1 + 1 for _, box in found)


def test_our_own_runs_are_marked_and_averaged_over_seeds(material: Material) -> None:
    points = own_points(material.results / "cifar10.json")
    assert [(one.network, one.seeds, one.epochs) for one in points] == [("nin", 2, 20), ("cifar_fast", 1, 20)]
    assert points[0].error == pytest.approx(0.09)
    figure, note = FIGURES.get("nin")(material)
    assert "our own runs" in [text.get_text() for text in figure.legends[0].get_texts()]
    assert note == "with 1 network of our own from cifar10.json"


@pytest.mark.slow
def test_our_own_runs_of_one_network_are_told_apart(tmp_path: Path) -> None:
    runs = [finish("nin", 0, 0.82), finish("nin", 0, 0.89, "adamw") | {"name": "nin again"}]
    record_result(tmp_path / "cifar10.json", summary={}, details=runs, command="", n=1)
    figure, note = FIGURES.get("nin")(Material(tmp_path))
    figure.canvas.draw()
    assert {"nin, ours by sgd", "nin, ours by adamw"} <= {text.get_text() for text, _ in words(figure)}
    assert note == "with 1 network of our own from cifar10.json"


def test_the_table_that_we_trained_has_bars_of_its_stds_beside_the_published_points(material: Material) -> None:
    from matplotlib.container import ErrorbarContainer

    figure, note = FIGURES.get("vgg-table")(material)
    macs, deployed, published = figure.axes
    assert note == "with 9 networks of our own from tiny-vgg.json"
    bars = [one for axes in (macs, deployed) for one in axes.containers if isinstance(one, ErrorbarContainer)]
    assert len(bars) == 2 * 9
    assert not published.containers
    points = {(float(x), float(y)) for line in macs.lines for x, y in zip(*line.get_data(), strict=True)}
    for mmacs, accuracy, std, _ in list(TRAINED.values())[:9]:
        ends = [100 - accuracy, 100 - accuracy - std, 100 - accuracy + std]
        assert all(any(x == mmacs and y == pytest.approx(end) for x, y in points) for end in ends)
    wfull = [y for line in published.lines for x, y in zip(*line.get_data(), strict=True) if x == 6.336823656]
    assert wfull == [pytest.approx(29.5819)]


def test_the_table_is_drawn_from_single_runs_without_times(tmp_path: Path) -> None:
    record_table(tmp_path, timed=False, seeds=1)
    figure, note = FIGURES.get("vgg-table")(Material(tmp_path))
    assert [axes.get_title() for axes in figure.axes] == ["ours: MACs", "the paper: MACs"]
    assert note.endswith("9 of them without times")
    assert not any(axes.containers for axes in figure.axes)


def test_without_results_a_figure_says_what_is_missing(tmp_path: Path) -> None:
    _, note = FIGURES.get("timings")(Material(tmp_path))
    assert "cruciform paper timings measures them" in note
    with pytest.raises(LeftOut, match="needs a trained network"):
        FIGURES.get("filters")(Material(tmp_path))
    with pytest.raises(LeftOut, match="tiny_vgg.py table makes them"):
        FIGURES.get("vgg-table")(Material(tmp_path))
    dense = Material(tmp_path, nn.Sequential(nn.Conv2d(3, 4, 3)), "dense")
    with pytest.raises(LeftOut, match="no layer with several filter groups"):
        FIGURES.get("filters")(dense)


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_figures_are_files_of_their_format(ending: Any, tmp_path: Path) -> None:
    start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending]
    drawn, left = draw_figures(Material(tmp_path), tmp_path, names=("connections", "filters"), ending=ending)
    assert drawn.path == tmp_path / f"connections.{ending}"
    assert drawn.path.read_bytes().startswith(start)
    assert left.path is None


def test_an_unknown_figure_is_refused_before_any_is_drawn(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="unknown figure 'place'. Did you mean 'places'"):
        list(draw_figures(Material(tmp_path), tmp_path / "new", names=("connections", "place")))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("n", [4, 6])
def test_access_maps_have_the_connections_of_arithmetic(n: int) -> None:
    """Along an axis of n pixels a centerd filter of 3 taps makes 3n − 2 connections, of 1 tap n."""
    assert dense_access(n).connections == n**4
    assert group_access(FilterGroup((3, 3), 1), (3, 3), n).connections == (3 * n - 2) ** 2
    assert group_access(FilterGroup((3, 1), 1), (3, 3), n).connections == n * (3 * n - 2)
    assert group_access(FilterGroup((1, 3), 1), (3, 3), n).connections == n * (3 * n - 2)


def test_a_column_of_taps_reads_the_pixels_above_and_below() -> None:
    weights = group_access(FilterGroup((3, 1), 1), (3, 3), 3).weights
    assert [index for index, weight in enumerate(weights[4]) if weight is not None] == [1, 4, 7]


def test_the_state_of_the_art_agrees_with_our_own_count_of_vgg_11(material: Material) -> None:
    ours = next(row for row in material.rows if row.published.network == "vgg-11")
    theirs = [one for one in rivals() if one.network == "vgg-11"]
    assert {one.params for one in theirs} == {ours.true_params}
    assert theirs[0].test_macs == ours.true_macs


def test_the_command_lists_what_it_drew(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from cruciform.cli.main import app

    words = ["paper", "figures", "-o", str(tmp_path), "--only", "connections", "--only", "filters", "--json"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0
    first, second = json.loads(result.output)
    assert first == {"figure": "connections", "file": str(tmp_path / "connections.png"), "note": ""}
    assert second["file"] is None
    assert "needs a trained network" in second["note"]
