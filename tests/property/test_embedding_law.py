"""The law that fixes all geometry, tried against its definition: no convolution of torch on the other side."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from strategies import inputs, layer_of, one_group_plans, plans

from cruciform.errors import NotLinearError, ShapeError
from cruciform.nn.composite import CompositeConv
from cruciform.nn.initialize import initialize_
from cruciform.nn.padding import pad_or_crop
from cruciform.plan import LayerPlan
from cruciform.spec import ConvSpec


def taken(x: torch.Tensor, axis: int, places: torch.Tensor, mode: str) -> torch.Tensor:
    """The values of x at any places along an axis, where x goes on beyond its ends as the padding mode says."""
    n = x.shape[axis]
    if mode == "zeros":
        inside = (places >= 0) & (places < n)
        shape = [-1 if a == axis else 1 for a in range(x.ndim)]
        return x.index_select(axis, places.clamp(0, n - 1)) * inside.view(shape)
    if mode == "replicate":
        places = places.clamp(0, n - 1)
    elif mode == "circular":
        places = places % n
    else:  # reflect
        places = places.abs()
        places = torch.where(places >= n, 2 * (n - 1) - places, places)
    return x.index_select(axis, places)


def by_definition(plan: LayerPlan, layer: CompositeConv, x: torch.Tensor) -> torch.Tensor:
    """Σ over taps: y[i] = w[u] · x[i·stride + (offset + u·dilation)·layer dilation − padding before]."""
    spec, (group,) = plan.spec, plan.stages[0].groups
    ((weight, bias),) = layer.stage_parameters()[0]
    sizes = spec.output_size(x.shape[2:])
    y = x.new_zeros(x.shape[0], spec.out_channels, *sizes)
    c, d = spec.in_channels // spec.groups, spec.out_channels // spec.groups
    for tap in itertools.product(*map(range, group.kernel)):
        part = x
        for axis, u in enumerate(tap):
            offset = (spec.kernel[axis] - ((group.kernel[axis] - 1) * group.dilation[axis] + 1)) // 2
            start = (offset + u * group.dilation[axis]) * spec.dilation[axis] - spec.padding[axis][0]
            places = torch.arange(sizes[axis]) * spec.stride[axis] + start
            part = taken(part, axis + 2, places, spec.padding_mode)
        for g in range(spec.groups):
            at = weight[(slice(g * d, (g + 1) * d), slice(None), *tap)]
            y[:, g * d : (g + 1) * d] += torch.einsum("dc,bc...->bd...", at, part[:, g * c : (g + 1) * c])
    return y if bias is None else y + bias.view(-1, *[1] * spec.rank)


@given(st.data(), one_group_plans(), st.integers(0, 2**31))
def test_a_filter_group_equals_its_kernel_embedded_in_the_window(
    data: st.DataObject, plan: LayerPlan, seed: int
) -> None:
    x, layer = data.draw(inputs(plan)), layer_of(plan, seed)
    torch.testing.assert_close(layer(x), by_definition(plan, layer, x))


def dense(kernel: tuple[ConvSpec, torch.Tensor, torch.Tensor | None], x: torch.Tensor) -> torch.Tensor:
    spec, weight, bias = kernel
    padded = pad_or_crop(x, spec.padding, "constant" if spec.padding_mode == "zeros" else spec.padding_mode)
    convolve = (F.conv1d, F.conv2d, F.conv3d)[spec.rank - 1]
    return convolve(padded, weight, bias, spec.stride, 0, spec.dilation, spec.groups)


@given(st.data(), plans(), st.integers(0, 2**31))
def test_a_linear_plan_equals_its_dense_kernel(data: st.DataObject, plan: LayerPlan, seed: int) -> None:
    x, layer = data.draw(inputs(plan)), layer_of(plan, seed)
    if plan.border_biases:
        with pytest.raises(NotLinearError, match="cuts off at the border"):
            layer.dense_kernel()
        with torch.no_grad():
            for stage in plan.border_biases:
                for _, bias in layer.stage_parameters()[stage]:
                    bias.zero_()
    torch.testing.assert_close(dense(layer.dense_kernel(), x), layer(x))


@pytest.mark.parametrize("rule", ["identity", "paper-identity"])
@given(plan=plans() | one_group_plans())
def test_an_identity_start_hands_on_its_first_channels(rule: str, plan: LayerPlan) -> None:
    layer = CompositeConv(plan, dtype=torch.float64)
    initialize_(layer, rule)
    spec, weight, bias = layer.dense_kernel()
    assert bias is None or not bias.any()
    groups = plan.spec.groups
    if max(plan.spec.kernel) == 1 or groups == plan.spec.in_channels > 1:
        return  # pointwise and depthwise layers are drawn whole
    narrowest = min(plan.spec.in_channels, *(stage.filters for stage in plan.stages)) // groups
    filters = plan.spec.out_channels // groups
    for index in range(plan.spec.out_channels):
        if index % filters >= narrowest:
            continue
        kernel = weight[index]
        assert torch.count_nonzero(kernel) == 1
        assert kernel[index % filters].sum() == 1
        even = any(
            n % 2 == 0 and d > 1 for g in plan.stages[0].groups for n, d in zip(g.kernel, g.dilation, strict=True)
        )
        if plan.spec.kernel == spec.kernel and not even:  # such taps lie beside the center
            assert kernel[(index % filters, *((k - 1) // 2 for k in spec.kernel))] == 1


@given(st.data(), plans())
def test_a_plan_keeps_the_output_size_of_its_convolution(data: st.DataObject, plan: LayerPlan) -> None:
    x = data.draw(inputs(plan))
    y = layer_of(plan, 0)(x)
    assert tuple(y.shape) == (x.shape[0], plan.spec.out_channels, *plan.spec.output_size(x.shape[2:]))


@given(st.data(), plans())
def test_an_input_smaller_than_the_window_is_refused_and_not_answered(data: st.DataObject, plan: LayerPlan) -> None:
    least = plan.spec.input_size((1,) * plan.spec.rank)
    axis = data.draw(st.integers(0, plan.spec.rank - 1))
    if plan.spec.padding_mode != "zeros" or least[axis] == 1:
        return
    sizes = [n - (a == axis) for a, n in enumerate(least)]
    with pytest.raises(ShapeError, match="smaller than the kernel"):
        plan.spec.output_size(sizes)
    with pytest.raises(ShapeError, match="smaller than the kernel"):
        layer_of(plan, 0)(torch.zeros(1, plan.spec.in_channels, *sizes, dtype=torch.float64))
