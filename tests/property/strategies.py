"""What laws are tried on: convolutions, filter groups, plans, and inputs that fit them."""

import torch
from hypothesis import assume
from hypothesis import strategies as st

from cruciform.errors import PlanError
from cruciform.plan import FilterGroup, LayerPlan, Stage, group_padding
from cruciform.schemes import SCHEMES, cross, separable_of_rank, thin
from cruciform.spec import ConvSpec

MODES = ("zeros", "reflect", "replicate", "circular")
SHAPES = ("k", "1", "2", "3", "2@2", "3@2", "5")


def per_axis(rank: int, least: int, most: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.tuples(*[st.integers(least, most)] * rank)


@st.composite
def specs(draw: st.DrawFn, *, grouped: bool = False) -> ConvSpec:
    rank = draw(st.integers(1, 3))
    kernel, dilation = draw(per_axis(rank, 1, 5)), draw(per_axis(rank, 1, 3))
    if draw(st.booleans()):
        stride, padding = (1,) * rank, draw(st.sampled_from(("same", "valid")))
    else:
        stride = draw(per_axis(rank, 1, 3))
        padding = draw(st.tuples(*[st.tuples(st.integers(0, 4), st.integers(0, 4))] * rank))
    groups = draw(st.integers(1, 3)) if grouped else 1
    return ConvSpec(
        groups * draw(st.integers(1, 4)),
        groups * draw(st.integers(1, 6)),
        kernel,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        bias=draw(st.booleans()),
        padding_mode=draw(st.sampled_from(MODES)),
    )


@st.composite
def one_group_plans(draw: st.DrawFn) -> LayerPlan:
    """A single filter group of any shape, smaller or larger than the window, dilated or not."""
    spec = draw(specs(grouped=True))
    group = FilterGroup(draw(per_axis(spec.rank, 1, 6)), spec.out_channels, draw(per_axis(spec.rank, 1, 2)))
    return LayerPlan(spec, (Stage((group,), spec.bias),))


@st.composite
def plans(draw: st.DrawFn) -> LayerPlan:
    """A plan of a registered scheme, of any rank, or of any member of the cross family."""
    spec = draw(specs())
    kind = draw(st.sampled_from(("named", "rank", "cross")))
    if kind == "named":
        return SCHEMES.get(draw(st.sampled_from(SCHEMES.names())))(spec)
    if kind == "rank":
        make = draw(st.sampled_from((separable_of_rank, thin)))
        try:
            return make(rank=draw(st.integers(1, 7)))(spec)
        except PlanError:  # a kernel that is longer than 1 along one axis only has nothing to separate
            assume(False)
            raise
    join = draw(st.sampled_from((False, True, "k")))
    shapes = draw(st.none() | st.lists(st.sampled_from(SHAPES), min_size=1, max_size=3))
    width = draw(st.sampled_from((1.0, 0.5, 1.5, 3.5))) if join else 1.0
    full = draw(st.sampled_from((0.0, 0.25, 1 / 7, 1.0)))
    block = draw(st.sampled_from((1, 2, 16)))
    try:
        return cross(width=width, full=full, join=join, shapes=shapes, block=block)(spec)
    except PlanError:  # two stages that filter along the same axis are refused
        assume(False)
        raise


@st.composite
def inputs(draw: st.DrawFn, plan: LayerPlan) -> torch.Tensor:
    """An input that the dense convolution takes, and that its padding mode allows to be padded."""
    spec, sizes = plan.spec, []
    for axis, least in enumerate(spec.input_size((1,) * spec.rank)):
        owner = plan.owners[axis]
        pads = [group_padding(plan.stage_spec(owner), group)[axis] for group in plan.stages[owner].groups]
        reach = max(map(max, [spec.padding[axis], *pads]))
        smallest = max(least, reach + 1 if spec.padding_mode in ("reflect", "circular") else 1)
        sizes.append(draw(st.integers(smallest, smallest + 5)))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    return torch.randn(draw(st.integers(1, 2)), spec.in_channels, *sizes, generator=generator, dtype=torch.float64)


def layer_of(plan: LayerPlan, seed: int) -> torch.nn.Module:
    """A layer with random weights and biases, in double precision."""
    from cruciform.nn.composite import CompositeConv

    generator = torch.Generator().manual_seed(seed)
    layer = CompositeConv(plan, dtype=torch.float64)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return layer
