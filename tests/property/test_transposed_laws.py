"""The laws of plans for transposed convolutions, against their definition: every input is spread over a window."""

import itertools

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import layer_of, per_axis
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from cruciform.conversion.convert import convert
from cruciform.conversion.dense import collapse
from cruciform.conversion.fit import fit_parameters, relative_residual
from cruciform.errors import NotLinearError, PlanError, ShapeError
from cruciform.measure.macs import profile
from cruciform.nn.composite import CompositeConv
from cruciform.nn.inspect import TRANSPOSED_CONVOLUTIONS, kernel_of, spec_of
from cruciform.plan import FilterGroup, LayerPlan, Stage, embedding_offset
from cruciform.schemes import SCHEMES, full, make_plan
from cruciform.spec import ConvSpec

SCHEME_NAMES = (
    *SCHEMES.names(),
    "sf:rank=2",
    "thin:rank=3",
    "cross:full=0.5",
    "cross:width=0.5,join",
    "cross:full=1.0",
)


@st.composite
def transposed_specs(draw: st.DrawFn, *, pairs: bool = True, groups: int = 1) -> ConvSpec:
    rank = draw(st.integers(1, 3))
    kernel, stride, dilation = (draw(per_axis(rank, 1, most)) for most in (5, 3, 2))
    padding = draw(st.tuples(*[st.tuples(st.integers(0, 3), st.integers(0, 3))] * rank))
    return ConvSpec(
        groups * draw(st.integers(1, 4)),
        groups * draw(st.integers(1, 6)),
        kernel,
        stride=stride,
        padding=padding if pairs else tuple(before for before, _ in padding),
        dilation=dilation,
        groups=groups,
        bias=draw(st.booleans()),
        transposed=True,
        output_padding=tuple(draw(st.integers(0, max(pair) - 1)) for pair in zip(stride, dilation, strict=True)),
    )


@st.composite
def group_plans(draw: st.DrawFn) -> LayerPlan:
    """A single filter group of any shape, smaller or larger than the window, dilated or not."""
    spec = draw(transposed_specs(groups=draw(st.integers(1, 3))))
    group = FilterGroup(draw(per_axis(spec.rank, 1, 6)), spec.out_channels, draw(per_axis(spec.rank, 1, 2)))
    try:
        return LayerPlan(spec, (Stage((group,), spec.bias),))
    except PlanError:
        return full(spec)


@st.composite
def transposed_plans(draw: st.DrawFn) -> LayerPlan:
    spec = draw(transposed_specs())
    try:
        return make_plan(spec, draw(st.sampled_from(SCHEME_NAMES)))
    except PlanError:
        assume(False)
        raise


any_plan = transposed_plans() | group_plans()


@st.composite
def inputs(draw: st.DrawFn, spec: ConvSpec) -> torch.Tensor:
    sizes = [draw(st.integers(least, least + 4)) for least in spec.input_size((1,) * spec.rank)]
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    return torch.randn(draw(st.integers(1, 2)), spec.in_channels, *sizes, generator=generator, dtype=torch.float64)


def places(spec: ConvSpec, group: FilterGroup, axis: int, tap: int, n: int) -> torch.Tensor:
    """Where along an axis of the output a tap puts each of n inputs."""
    offset = embedding_offset(spec.kernel[axis], group.kernel[axis], group.dilation[axis])
    start = (offset + tap * group.dilation[axis]) * spec.dilation[axis] - spec.padding[axis][0]
    return torch.arange(n) * spec.stride[axis] + start


def by_definition(plan: LayerPlan, layer: CompositeConv, x: torch.Tensor) -> torch.Tensor:
    """Σ over taps: y[i·stride + (offset + u·dilation)·layer dilation − padding before] += w[u] · x[i]."""
    spec, (group,) = plan.spec, plan.stages[0].groups
    ((weight, bias),) = layer.stage_parameters()[0]
    sizes, c, d = spec.output_size(x.shape[2:]), spec.in_channels // spec.groups, spec.out_channels // spec.groups
    y = x.new_zeros(x.shape[0], spec.out_channels, *sizes)
    for tap in itertools.product(*map(range, group.kernel)):
        source, target = [], []
        for axis, u in enumerate(tap):
            where = places(spec, group, axis, u, x.shape[axis + 2])
            inside = (where >= 0) & (where < sizes[axis])
            source.append(inside.nonzero()[:, 0])
            target.append(where[inside])
        read, written = torch.meshgrid(*source, indexing="ij"), torch.meshgrid(*target, indexing="ij")
        for g in range(spec.groups):
            at = weight[(slice(g * d, (g + 1) * d), slice(None), *tap)]
            part = x[(slice(None), slice(g * c, (g + 1) * c), *read)]
            y[(slice(None), slice(g * d, (g + 1) * d), *written)] += torch.einsum("dc,bc...->bd...", at, part)
    return y if bias is None else y + bias.view(-1, *[1] * spec.rank)


@given(st.data(), group_plans(), st.integers(0, 2**31))
def test_a_filter_group_equals_its_kernel_embedded_in_the_window(
    data: st.DataObject, plan: LayerPlan, seed: int
) -> None:
    x, layer = data.draw(inputs(plan.spec)), layer_of(plan, seed)
    torch.testing.assert_close(layer(x), by_definition(plan, layer, x))


@given(st.data(), transposed_plans(), st.integers(0, 2**31))
def test_a_linear_plan_equals_its_dense_kernel(data: st.DataObject, plan: LayerPlan, seed: int) -> None:
    x, layer = data.draw(inputs(plan.spec)), layer_of(plan, seed)
    if plan.border_biases:
        with pytest.raises(NotLinearError, match="has a bias"):
            layer.dense_kernel()
        with torch.no_grad():
            for stage in plan.border_biases:
                for _, bias in layer.stage_parameters()[stage]:
                    bias.zero_()
    spec, weight, bias = layer.dense_kernel()
    dense = layer_of(full(spec), 0)
    with torch.no_grad():
        dense.weight_0_0.copy_(weight)
        if bias is not None:
            dense.bias_0_0.copy_(bias)
    torch.testing.assert_close(by_definition(full(spec), dense, x), layer(x))
    torch.testing.assert_close(collapse(layer)(x), layer(x))


@given(transposed_specs(), st.data())
def test_a_group_is_refused_where_it_leaves_outputs_out_that_the_window_reaches(
    spec: ConvSpec, data: st.DataObject
) -> None:
    group = FilterGroup(data.draw(per_axis(spec.rank, 1, 5)), spec.out_channels)
    whole, n = FilterGroup(spec.kernel, spec.out_channels), 40
    holes = False
    for axis in range(spec.rank):
        inner = range(3 * max(spec.kernel) * max(spec.dilation), 20)  # away from both ends
        reached = [
            {int(place) for tap in range(one.kernel[axis]) for place in places(spec, one, axis, tap, n)}
            for one in (group, whole)
        ]
        holes |= bool((reached[1] - reached[0]) & {*inner, 20, 21, 22})
    try:
        LayerPlan(spec, (Stage((group,), spec.bias),))
        assert not holes
    except PlanError as error:
        assert "would leave holes" in str(error)  # noqa: PT017
        assert holes


@given(st.data(), any_plan)
def test_plan_module_dispatcher_and_meter_count_alike(data: st.DataObject, plan: LayerPlan) -> None:
    x = data.draw(inputs(plan.spec))
    layer = CompositeConv(plan, device="meta")
    assert plan.params == sum(p.numel() for p in layer.parameters())
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        y = layer(x.float().to("meta"))
    assert tuple(y.shape) == (x.shape[0], plan.spec.out_channels, *plan.spec.output_size(x.shape[2:]))
    macs = plan.macs_from_input(x.shape[2:])
    assert counter.get_total_flops() == 2 * x.shape[0] * macs
    assert profile(layer, x.shape[1:]).macs == macs
    assert sum(map(sum, plan.group_macs(x.shape[2:]))) == macs
    assert plan.macs(plan.spec.output_size(x.shape[2:])) <= macs


@given(any_plan)
def test_plans_survive_json(plan: LayerPlan) -> None:
    assert LayerPlan.from_json(plan.to_json()) == plan


@given(transposed_specs())
def test_the_smallest_input_is_the_smallest(spec: ConvSpec) -> None:
    least = spec.input_size((1,) * spec.rank)
    assert min(spec.output_size(least)) >= 1
    for axis, n in enumerate(least):
        if n > 1:
            with pytest.raises(ShapeError, match="it must be at least"):
                spec.output_size([m - (a == axis) for a, m in enumerate(least)])


@given(st.data(), transposed_specs(pairs=False), st.sampled_from(SCHEME_NAMES), st.sampled_from(["auto", "fit"]))
def test_any_transposed_convolution_converts_or_is_skipped_with_the_reason(
    data: st.DataObject, spec: ConvSpec, scheme: str, init: str
) -> None:
    padding = tuple(before for before, _ in spec.padding)
    conv = TRANSPOSED_CONVOLUTIONS[spec.rank - 1](
        spec.in_channels, spec.out_channels, spec.kernel, spec.stride, padding, spec.output_padding,
        bias=spec.bias, dilation=spec.dilation, dtype=torch.float64,
    )  # fmt: skip
    assert spec_of(conv) == spec
    x = data.draw(inputs(spec))
    converted, report = convert(nn.Sequential(conv), scheme, init=init, input_size=x.shape[1:])
    (row,) = report.layers
    assert converted(x).shape == conv(x).shape
    if row.plan is None:
        assert row.reason
        torch.testing.assert_close(converted(x), conv(x), rtol=0, atol=0)
    elif init == "fit" and row.residual is not None and row.residual < 1e-9:
        torch.testing.assert_close(converted(x), conv(x))


@given(transposed_plans(), st.integers(0, 2**31))
def test_a_chain_that_the_plan_can_represent_is_fitted_exactly(plan: LayerPlan, seed: int) -> None:
    layer = layer_of(plan, seed)
    with torch.no_grad():
        for _, bias in itertools.chain(*layer.stage_parameters()):
            if bias is not None:
                bias.zero_()
    kernel = layer.dense_kernel().weight.detach()
    if tuple(kernel.shape[2:]) != plan.spec.kernel or max(map(len, (s.groups for s in plan.stages))) > 1:
        return
    assert relative_residual(plan, fit_parameters(plan, kernel, None), kernel) < 1e-8


def test_a_full_plan_is_torchs_own_transposed_convolution() -> None:
    conv = nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1)
    layer, x = CompositeConv(full(spec_of(conv))), torch.randn(2, 4, 5, 7)
    with torch.no_grad():
        layer.weight_0_0.copy_(kernel_of(conv))
        layer.bias_0_0.copy_(conv.bias)
    torch.testing.assert_close(layer(x), conv(x))
