"""Arithmetic on filters, held against cases that can be worked out by hand."""

import pytest
import torch
from torch import nn

from cruciform.errors import OptionError
from cruciform.measure.filters import effective_rank, layer_filters, network_filters
from cruciform.measure.tiles import basis_tiles
from cruciform.nn.composite import CompositeConv
from cruciform.nn.inspect import stage_parameters_of
from cruciform.nn.standardize import standardize_
from cruciform.plan import FilterGroup, LayerPlan, Stage
from cruciform.schemes import make_plan
from cruciform.spec import ConvSpec


@pytest.mark.parametrize(
    ("values", "rank"),
    [([2.0, 2.0, 2.0], 3.0), ([5.0, 0.0, 0.0], 1.0), ([0.0, 0.0], 0.0), ([1.0, 1.0, 0.0, 0.0], 2.0)],
)
def test_effective_rank_counts_equal_directions(values: list[float], rank: float) -> None:
    assert effective_rank(torch.tensor(values)) == pytest.approx(rank, abs=1e-6)


def test_effective_rank_of_unequal_directions_is_the_exponential_of_their_entropy() -> None:
    # Shares 1/2, 1/4, 1/4 have an entropy of 1.5 bits.
    assert effective_rank(torch.tensor([2.0, 1.0, 1.0])) == pytest.approx(2**1.5)


def test_the_kernel_of_a_join_is_the_cross_that_it_adds_up_to() -> None:
    layer = CompositeConv(make_plan(ConvSpec(1, 2, 3, padding=1), "lr-join"))
    with torch.no_grad():
        layer.weight_0_0.copy_(torch.tensor([1.0, 2.0, 3.0]).view(1, 1, 3, 1))
        layer.weight_0_1.copy_(torch.tensor([4.0, 5.0, 6.0]).view(1, 1, 1, 3))
        layer.weight_1_0.copy_(torch.tensor([[1.0, 1.0], [2.0, 0.0]]).view(2, 2, 1, 1))
    found = layer_filters("conv", layer)
    assert found.kernel is not None
    assert found.kernel[0, 0].tolist() == [[0, 1, 0], [4, 7, 6], [0, 3, 0]]
    assert found.kernel[1, 0].tolist() == [[0, 2, 0], [0, 4, 0], [0, 6, 0]]
    # 3×1 through the join: (1 + 4)·14 = 70; 1×3: 1·77.
    assert [one.energy for one in found.groups] == pytest.approx([70 / 147, 77 / 147, 1.0])
    assert [one.shape for one in found.groups] == ["3×1", "1×3", "1×1"]


def test_lines_have_spatial_rank_one_and_an_identity_three() -> None:
    layer = CompositeConv(make_plan(ConvSpec(4, 8, 3), "lr"))
    assert layer_filters("conv", layer).spatial_rank == pytest.approx(1.0, abs=1e-4)
    square = nn.Conv2d(2, 2, 3)
    with torch.no_grad():
        square.weight.copy_(torch.eye(3).expand(2, 2, 3, 3))
    found = layer_filters("conv", square)
    assert found.spatial_rank == pytest.approx(3.0, abs=1e-4)
    assert found.effective_rank == pytest.approx(1.0, abs=1e-3)  # both filters are the same


def test_biases_inside_do_not_hide_the_kernel() -> None:
    layer = CompositeConv(make_plan(ConvSpec(2, 4, 3, padding=1), "sf"))
    with torch.no_grad():
        layer.bias_0_0.fill_(1.0)
    assert layer_filters("conv", layer).kernel is not None


def test_a_non_linearity_inside_leaves_no_kernel_and_says_why() -> None:
    spec = ConvSpec(2, 4, 3, padding=1)
    stages = (Stage((FilterGroup((3, 3), 4),), activation="relu"), Stage((FilterGroup((1, 1), 4),)))
    found = layer_filters("conv", CompositeConv(LayerPlan(spec, stages)))
    assert found.kernel is None
    assert found.effective_rank is None
    assert "relu" in found.why_not
    assert found.to_dict()["groups"][0]["energy"] is None


def test_layers_are_chosen_by_name_and_pointwise_ones_have_nothing_to_show() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 1), nn.Conv3d(1, 2, 3), nn.Linear(3, 2))
    assert [found.name for found in network_filters(model)] == ["0", "2"]
    assert [found.name for found in network_filters(model, "2")] == ["2"]
    with pytest.raises(OptionError, match="no layer with a kernel larger than 1 matches 'conv9'; there are: 0, 2"):
        network_filters(model, "conv9")


def test_a_standardized_layer_is_looked_at_as_it_computes() -> None:
    layer = CompositeConv(make_plan(ConvSpec(4, 4, 3, padding=1), "lr"))
    standardize_(layer, 1e-6, None)
    first = stage_parameters_of(layer)[0][0][0]
    with torch.no_grad():
        first *= 10  # which the standardization undoes
    assert [group.energy for group in layer_filters("layer", layer).groups] == pytest.approx([0.5, 0.5], rel=1e-3)


def test_a_layer_of_zeros_has_rank_and_energy_zero() -> None:
    layer = CompositeConv(make_plan(ConvSpec(2, 4, 3), "lr"))
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    found = layer_filters("conv", layer)
    assert (found.effective_rank, found.spatial_rank) == (0.0, 0.0)
    assert [one.energy for one in found.groups] == [0.0, 0.0]


def test_weights_that_are_not_finite_leave_no_kernel_and_say_so() -> None:
    layer = CompositeConv(make_plan(ConvSpec(3, 8, 3), "lr-join"))
    with torch.no_grad():
        next(layer.parameters())[0] = torch.nan
    found = layer_filters("conv", layer)
    assert (found.why_not, found.kernel, found.effective_rank) == ("its weights have NaN or Inf", None, None)
    tiles = [tile for _, group in basis_tiles(found, 8) for tile in group]
    assert all(value is None or abs(value) <= 1 for tile in tiles for row in tile for value in row)
