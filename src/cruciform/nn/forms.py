"""Exactly equivalent forms of a layer. Here: the single dense kernel of a plan with nothing non-linear inside.

Symbols: ``t`` stages, each with a kernel of shape (d, c, window). Along every axis one stage alone filters (the
ownership rule of ``cruciform.plan``), so composing stages is a product over channels and an outer one over axes.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from cruciform.errors import NotLinearError
from cruciform.plan import FilterGroup, LayerPlan, embedding_offset
from cruciform.spec import ConvSpec, Ints, Pads, join_sizes, span

GroupParameters = tuple[Tensor, Tensor | None]


class DenseKernel(NamedTuple):
    """The dense convolution that is equivalent to a layer.

    Attributes:
        spec: Its geometry: the layer's own, with a larger window and padding where a group reaches out of it.
        weight: (d, c / groups, window).
        bias: (d,), or None where no stage has one.
    """

    spec: ConvSpec
    weight: Tensor
    bias: Tensor | None


def collapse_kernel(plan: LayerPlan, parameters: Sequence[Sequence[GroupParameters]]) -> DenseKernel:
    """Return the single kernel that is exactly equal to the plan with these parameters.

    Raises:
        NotLinearError: A non-linearity stands between stages, or a bias inside is cut off at the border.
    """
    _refuse_unequal(plan, parameters)
    reach = _reach(plan)
    weight, bias = _embed_stage(plan, 0, parameters[0], reach)
    for index in range(1, len(plan.stages)):
        outer, outer_bias = _embed_stage(plan, index, parameters[index], reach)
        # One of the two has a single tap along each axis, so shapes broadcast: e is what stands between them.
        weight = torch.einsum("de...,ec...->dc...", *_paired(outer, weight))
        if bias is not None:
            bias = torch.einsum("de...,e->d", outer, bias)
        if outer_bias is not None:
            bias = outer_bias if bias is None else bias + outer_bias
    return DenseKernel(_dense_spec(plan.spec, reach, bias is not None), weight, bias)


def _paired(outer: Tensor, inner: Tensor) -> tuple[Tensor, Tensor]:
    shape = torch.broadcast_shapes(outer.shape[2:], inner.shape[2:])
    return outer.expand(*outer.shape[:2], *shape), inner.expand(*inner.shape[:2], *shape)


def _refuse_unequal(plan: LayerPlan, parameters: Sequence[Sequence[GroupParameters]]) -> None:
    if plan.obstacle:
        raise NotLinearError(f"{plan} has no equivalent single kernel: {plan.obstacle}")
    for index in plan.border_biases:
        if any(bias is not None and bool(bias.detach().any()) for _, bias in parameters[index]):
            raise NotLinearError(
                f"{plan} has no equivalent single kernel: stage {index} has a bias, which the zero padding of a later "
                "stage cuts off at the border. Build the layer with bias=False, or keep these biases at zero"
            )


def _reach(plan: LayerPlan) -> Pads:
    """Return, per axis, how many taps before and after the layer's window its groups reach."""
    reach = []
    for axis, window in enumerate(plan.spec.kernel):
        before = after = 0
        for group in plan.stages[plan.owners[axis]].groups:
            offset = embedding_offset(window, group.kernel[axis], group.dilation[axis])
            before = max(before, -offset)
            after = max(after, offset + span(group.kernel[axis], group.dilation[axis]) - window)
        reach.append((before, after))
    return tuple(reach)


def _dense_spec(spec: ConvSpec, reach: Pads, bias: bool) -> ConvSpec:  # noqa: FBT001
    return ConvSpec(
        spec.in_channels,
        spec.out_channels,
        kernel=tuple(k + before + after for k, (before, after) in zip(spec.kernel, reach, strict=True)),
        stride=spec.stride,
        padding=tuple(
            (pad[0] + more[0] * tap, pad[1] + more[1] * tap)
            for pad, more, tap in zip(spec.padding, reach, spec.dilation, strict=True)
        ),
        dilation=spec.dilation,
        groups=spec.groups,
        bias=bias,
        padding_mode=spec.padding_mode,
        transposed=spec.transposed,
        output_padding=spec.output_padding,
    )


def _embed_stage(
    plan: LayerPlan, index: int, parameters: Sequence[GroupParameters], reach: Pads
) -> tuple[Tensor, Tensor | None]:
    """Return the kernels of a stage's groups, each in the stage's window, one below the other."""
    owned = [owner == index for owner in plan.owners]
    window = tuple(k if mine else 1 for k, mine in zip(plan.spec.kernel, owned, strict=True))
    margin = tuple(pair if mine else (0, 0) for pair, mine in zip(reach, owned, strict=True))
    groups = plan.stages[index].groups
    kernels = [
        embed_kernel(weight, group, window, margin) for (weight, _), group in zip(parameters, groups, strict=True)
    ]
    biases = [bias for _, bias in parameters if bias is not None]
    return torch.cat(kernels), torch.cat(biases) if biases else None


def embed_kernel(weight: Tensor, group: FilterGroup, window: Ints, margin: Pads) -> Tensor:
    """Return a group's kernel at the center of a window, zeros elsewhere; ``margin`` widens the window."""
    sizes = [k + before + after for k, (before, after) in zip(window, margin, strict=True)]
    places = []
    for axis, (before, _) in enumerate(margin):
        start = before + embedding_offset(window[axis], group.kernel[axis], group.dilation[axis])
        stop = start + span(group.kernel[axis], group.dilation[axis])
        if start < 0 or stop > sizes[axis]:
            raise NotLinearError(f"the group [{group}] does not fit a kernel of {join_sizes(sizes)}")
        places.append(slice(start, stop, group.dilation[axis]))
    kernel = weight.new_zeros(*weight.shape[:2], *sizes)
    kernel[(slice(None), slice(None), *places)] = weight
    return kernel
