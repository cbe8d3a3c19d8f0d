"""The laws once more for volumes: every 3-D scheme with its options, windows such as 1×3×3, unequal strides."""

import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from strategies import inputs, layer_of, per_axis
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from cruciform.measure.macs import profile
from cruciform.nn.composite import CompositeConv
from cruciform.plan import LayerPlan
from cruciform.schemes import make_plan
from cruciform.spec import ConvSpec

LINES = ("cross3", "cross:full=0.25", "cross:block=2", "cross:join", "cross:full=0.25,join", "cross:width=0.5,join")
PLANES = ("planes", *(f"cross:shapes=planes,{options}" for options in ("full=0.25", "join", "full=0.25,join")))
AXIAL = ("axial", "cross:shapes=kxkx1,join=1x1xk", "cross:shapes=kxkx1,width=0.5,join=1x1xk")
ONE_STAGE = ("cross3", "cross:full=0.25", "cross:block=2", "planes", "cross:shapes=planes,full=0.25")
SQUARE_WINDOWS = ((3, 3, 3), (5, 5, 5), (1, 3, 3), (3, 1, 3), (3, 3, 1), (1, 5, 5))
WINDOWS = st.sampled_from(SQUARE_WINDOWS) | per_axis(3, 1, 5)


@st.composite
def volume_specs(draw: st.DrawFn) -> ConvSpec:
    return ConvSpec(
        draw(st.integers(1, 4)),
        draw(st.integers(1, 9)),
        draw(WINDOWS),
        stride=draw(per_axis(3, 1, 3)),
        padding=draw(per_axis(3, 0, 2)),
        dilation=draw(per_axis(3, 1, 2)),
        bias=draw(st.booleans()),
    )


def volume_plans(names: tuple[str, ...] = (*LINES, *PLANES, *AXIAL)) -> st.SearchStrategy[LayerPlan]:
    return st.builds(make_plan, volume_specs(), st.sampled_from(names))


@given(st.data(), volume_plans())
def test_plan_module_meter_and_dispatcher_count_the_same(data: st.DataObject, plan: LayerPlan) -> None:
    x = data.draw(inputs(plan))
    layer = CompositeConv(plan, device="meta")
    assert plan.params == sum(parameter.numel() for parameter in layer.parameters())
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        layer(x.float().to("meta"))
    macs = plan.macs_from_input(x.shape[2:])
    assert counter.get_total_flops() == 2 * x.shape[0] * macs
    counted = profile(layer, x.shape[1:])
    assert (counted.params, counted.macs) == (plan.params, macs)


def embedded(layer: CompositeConv, stage: int) -> Tensor:
    """The groups of a stage as one kernel of the layer's window: each at its center, none of our own code about it."""
    window = layer.plan.spec.kernel
    rows = []
    for weight, _ in layer.stage_parameters()[stage]:
        room = [extent - taps for extent, taps in zip(window, weight.shape[2:], strict=True)]
        rows.append(F.pad(weight, [pad for space in reversed(room) for pad in (space // 2, space - space // 2)]))
    return torch.cat(rows)


def biases(layer: CompositeConv, stage: int) -> Tensor | None:
    found = [bias for _, bias in layer.stage_parameters()[stage] if bias is not None]
    return torch.cat(found) if found else None


def geometry(spec: ConvSpec) -> tuple[tuple[int, ...], ...]:
    return spec.stride, tuple(before for before, _ in spec.padding), spec.dilation


@given(st.data(), volume_plans(ONE_STAGE), st.integers(0, 2**31))
def test_lines_and_planes_are_embedded_in_the_window(data: st.DataObject, plan: LayerPlan, seed: int) -> None:
    x, layer = data.draw(inputs(plan)), layer_of(plan, seed)
    expected = F.conv3d(x, embedded(layer, 0), biases(layer, 0), *geometry(plan.spec))
    torch.testing.assert_close(layer(x), expected)


@given(st.data(), volume_plans(tuple(name for name in (*LINES, *PLANES) if name.endswith("join"))), st.integers(0, 99))
def test_a_join_mixes_what_is_embedded(data: st.DataObject, plan: LayerPlan, seed: int) -> None:
    x, layer = data.draw(inputs(plan)), layer_of(plan, seed)
    basis = F.conv3d(x, embedded(layer, 0), biases(layer, 0), *geometry(plan.spec))
    ((join, bias),) = layer.stage_parameters()[1]
    torch.testing.assert_close(layer(x), F.conv3d(basis, join, bias))


@given(volume_specs())
def test_axial_is_a_member_of_the_cross_family(spec: ConvSpec) -> None:
    plan = make_plan(spec, "axial")
    if min(spec.kernel) > 1:  # an axis without extent changes which one comes last
        assert plan == make_plan(spec, "cross:shapes=kxkx1,join=1x1xk")
    along = [sum(g.kernel[axis] > 1 for stage in plan.stages for g in stage.groups) for axis in range(3)]
    assert along == [int(extent > 1) for extent in spec.kernel]


@given(volume_specs(), st.sampled_from((*LINES, *PLANES, "axial")))
def test_no_filter_reaches_along_an_axis_that_the_window_does_not(spec: ConvSpec, scheme: str) -> None:
    for stage in make_plan(spec, scheme).stages:
        for group in stage.groups:
            assert all(taps in (1, extent) for taps, extent in zip(group.kernel, spec.kernel, strict=True))


@given(st.integers(1, 8), st.integers(1, 6), st.sampled_from((3, 5, 7)))
def test_weights_of_a_cube_shrink_as_the_table_says(channels: int, thirds: int, k: int) -> None:
    spec = ConvSpec(channels, 3 * thirds, (k, k, k), bias=False)
    dense, filters = spec.params, spec.out_channels
    assert make_plan(spec, "cross3").params * k**2 == dense
    assert make_plan(spec, "planes").params * k == dense
    assert make_plan(spec, "axial").params == channels * filters * k**2 + filters * filters * k
    assert make_plan(spec, "cross:join").params * k**2 == dense + filters**2 * k**2
