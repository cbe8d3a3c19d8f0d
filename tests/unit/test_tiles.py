"""Filters as small pictures: worked out by hand."""

import math
from pathlib import Path

import pytest
import torch
from torch import nn

from cruciform.measure.filters import layer_filters
from cruciform.measure.tiles import basis_tiles, energy_tile, join_tile, kernel_tiles, strongest_slices
from cruciform.nn.composite import CompositeConv
from cruciform.plot.filters import draw_filters, mosaic
from cruciform.schemes import make_plan
from cruciform.spec import ConvSpec


def column_and_row() -> CompositeConv:
    """One filter of 1, 2, 4 downwards and one of 0, 0, −3 to the right."""
    layer = CompositeConv(make_plan(ConvSpec(1, 2, 3, padding=1), "lr"))
    with torch.no_grad():
        layer.weight_0_0.copy_(torch.tensor([1.0, 2.0, 4.0]).view(1, 1, 3, 1))
        layer.weight_0_1.copy_(torch.tensor([0.0, 0.0, -3.0]).view(1, 1, 1, 3))
    return layer


def test_a_basis_filter_stands_in_the_middle_of_the_window_scaled_by_its_largest_weight() -> None:
    (tall, (column,)), (wide, (row,)) = basis_tiles(layer_filters("conv", column_and_row()), 4)
    assert (tall, wide) == ("3×1", "1×3")
    assert column == [[None, 0.25, None], [None, 0.5, None], [None, 1.0, None]]
    assert row == [[None] * 3, [0.0, 0.0, -1.0], [None] * 3]


def test_energy_is_shared_among_the_taps() -> None:
    shares = energy_tile(layer_filters("conv", column_and_row()))
    expected = [[0, 1, 0], [0, 4, 9], [0, 16, 0]]
    assert shares == [[pytest.approx(value / 30) for value in row] for row in expected]


def test_the_strongest_filters_come_first_each_by_its_strongest_channel() -> None:
    weight = torch.zeros(3, 2, 1, 1)
    weight[:, :, 0, 0] = torch.tensor([[1.0, 2.0], [5.0, 0.0], [3.0, -4.5]])
    assert strongest_slices(weight, 2).flatten().tolist() == [-4.5, 5.0]


def test_a_join_is_shown_as_the_mixture_of_the_strongest_kernels() -> None:
    layer = CompositeConv(make_plan(ConvSpec(1, 2, 3, padding=1), "lr-join"))
    with torch.no_grad():
        layer.weight_0_0.fill_(1.0)
        layer.weight_0_1.fill_(1.0)
        layer.weight_1_0.copy_(torch.tensor([[0.5, 0.0], [1.0, -2.0]]).view(2, 2, 1, 1))
    assert join_tile(layer_filters("conv", layer), 2) == [[0.5, -1.0], [0.25, 0.0]]
    assert join_tile(layer_filters("conv", column_and_row()), 2) == []
    assert join_tile(layer_filters("conv", CompositeConv(make_plan(ConvSpec(1, 2, 3), "sf"))), 2) == []


def test_volumes_are_shown_as_planes_side_by_side_and_lines_as_a_row() -> None:
    (tile,) = kernel_tiles(layer_filters("conv", nn.Conv3d(1, 1, (2, 3, 4))), 1)
    assert (len(tile), len(tile[0])) == (3, 8)
    (line,) = kernel_tiles(layer_filters("conv", nn.Conv1d(1, 1, 5)), 1)
    assert (len(line), len(line[0])) == (1, 5)


def test_a_mosaic_leaves_gaps_and_empty_places() -> None:
    picture = mosaic([[[1.0]], None, [[3.0]]], columns=2)
    assert [[None if math.isnan(value) else value for value in row] for row in picture] == [
        [1.0, None, None],
        [None, None, None],
        [3.0, None, None],
    ]


@pytest.mark.parametrize("layer", [nn.Conv1d(2, 4, 5), nn.Conv3d(1, 4, 3), column_and_row()], ids=["1-D", "3-D", "2-D"])
def test_layers_of_any_rank_can_be_drawn(layer: nn.Module) -> None:
    figure = draw_filters([layer_filters("a.long.name.of.a.layer", layer)], source="here")
    figure.canvas.draw()
    assert len(figure.axes) == 4


def test_the_command_draws_and_tells(tmp_path: Path) -> None:
    import json

    from typer.testing import CliRunner

    from cruciform.cli.main import app

    words = ["filters", "nin_c3_lr", "--layer", "conv2", "-o", str(tmp_path / "f.png"), "--json"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0
    found = json.loads(result.output)
    assert [one["layer"] for one in found] == ["features.conv2_1", "features.conv2_2"]
    assert sum(group["energy"] for group in found[0]["groups"]) == pytest.approx(1)
    assert found[0]["largest_rank"] == 192
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")
