"""Initialization: the distributions of the initial weights of a plan.

The paper's rule, σ = sqrt(gain² / Σ hᵢwᵢdᵢ), sums over all groups of a stage, because all of them send gradient
back to the same input. The paper writes gain² = 2, which is right in front of a ReLU; a stage in front of a
linear join has none after it and needs gain² = 1 (measured: with 2 the gradient doubles at every such layer).

==================  =============================================  ===============================
rule                σ² of a group with dᵢ filters of hᵢ×wᵢ         biases
==================  =============================================  ===============================
paper-completed     gain²(what follows the stage) / Σ hᵢwᵢdᵢ       0
paper-literal       2 / Σ hᵢwᵢdᵢ                                   0
per-group           2 / hᵢwᵢdᵢ                                     0
pytorch             uniform in ±1/√(hᵢwᵢc), as nn.Conv2d does       the same
identity            that of ``pytorch``, and an identity            0
paper-identity      that of ``paper-completed``, and an identity    0
==================  =============================================  ===============================

With **an identity** the layer hands on its first input channels as they are, at the window's center: as many as every
stage has filters and inputs for, filter j of a stage channel j, whichever group it belongs to. Only the other filters
are drawn. Layers with a window of one tap, fully connected ones among them, are drawn whole: they filter nothing.
Depthwise layers are drawn whole too: as identities they would filter nothing either.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from cruciform.nn.activations import gain_squared
from cruciform.plan import FilterGroup, LayerPlan, embedding_offset
from cruciform.registry import Registry
from cruciform.spec import ConvSpec, Ints

DEFAULT_RULE = "paper-completed"
NORMED_RULE = "pytorch"
"""Where the network has norms: docs/concepts/initialization.md has what was measured."""


@dataclass(frozen=True)
class Draw:
    """The zero-mean distribution of the weights of one filter group.

    Attributes:
        shape: Normal with standard deviation ``scale``, or uniform within ±``scale``.
        scale: How wide.
        bias_scale: Biases are drawn uniformly within ±``bias_scale``.
        passed: Filters that are not drawn but hand on one input channel: filter → channel.
        tap: Where in its kernel such a filter has its 1.
    """

    shape: Literal["normal", "uniform"]
    scale: float
    bias_scale: float = 0.0
    passed: Mapping[int, int] = field(default_factory=dict)
    tap: Ints = ()


@dataclass(frozen=True)
class Surroundings:
    """The surroundings of a layer that its initial weights depend on.

    Attributes:
        activation: The non-linearity after the layer, by name; None for none.
        fan_out: n̂ of all that reads the layer's input, where other layers read it too.
    """

    activation: str | None = "relu"
    fan_out: float | None = None


Rule: TypeAlias = Callable[[LayerPlan, Surroundings], list[list[Draw]]]
"""From a plan and its surroundings to a draw for each group of each stage."""

RULES: Registry[Rule] = Registry("initialization")


def _joint(plan: LayerPlan, gains: Sequence[float], first_fan_out: float | None) -> list[list[Draw]]:
    fan_outs = [plan.fan_out(index) for index in range(len(plan.stages))]
    fan_outs[0] = first_fan_out or fan_outs[0]
    return [
        [Draw("normal", math.sqrt(gain / fan_out))] * len(stage.groups)
        for stage, gain, fan_out in zip(plan.stages, gains, fan_outs, strict=True)
    ]


@RULES.register("paper-completed")
def _paper_completed(plan: LayerPlan, around: Surroundings) -> list[list[Draw]]:
    return _joint(plan, [gain_squared(name) for name in plan.activations(around.activation)], around.fan_out)


@RULES.register("paper-literal")
def _paper_literal(plan: LayerPlan, around: Surroundings) -> list[list[Draw]]:
    return _joint(plan, [2.0] * len(plan.stages), around.fan_out)


@RULES.register("per-group")
def _per_group(plan: LayerPlan, around: Surroundings) -> list[list[Draw]]:
    return [
        [
            Draw("normal", math.sqrt(2 * plan.spec.groups / (math.prod(group.kernel) * group.filters)))
            for group in stage.groups
        ]
        for stage in plan.stages
    ]


@RULES.register("pytorch")
def _pytorch(plan: LayerPlan, around: Surroundings) -> list[list[Draw]]:
    def bound(index: int, kernel: Sequence[int]) -> float:
        return 1 / math.sqrt(math.prod(kernel) * plan.in_channels(index) // plan.spec.groups)

    return [
        [Draw("uniform", bound(index, group.kernel), bound(index, group.kernel)) for group in stage.groups]
        for index, stage in enumerate(plan.stages)
    ]


@RULES.register("identity")
def _identity(plan: LayerPlan, around: Surroundings) -> list[list[Draw]]:
    return _handing_on(plan, _pytorch(plan, around))


@RULES.register("paper-identity")
def _paper_identity(plan: LayerPlan, around: Surroundings) -> list[list[Draw]]:
    return _handing_on(plan, _paper_completed(plan, around))


def _handing_on(plan: LayerPlan, draws: list[list[Draw]]) -> list[list[Draw]]:
    """Return draws without biases, in which the first filters of every stage pass on their input."""
    spec = plan.spec
    hands_on = math.prod(spec.kernel) > 1 and not (spec.groups > 1 and spec.groups == spec.in_channels)
    changed = []
    for index, stage in enumerate(plan.stages):
        window, first, row = plan.stage_spec(index), 0, []
        for group, draw in zip(stage.groups, draws[index], strict=True):
            passed = _passed(window, first, group.filters) if hands_on else {}
            row.append(replace(draw, bias_scale=0.0, passed=passed, tap=_central_tap(window, group)))
            first += group.filters
        changed.append(row)
    return changed


def _passed(spec: ConvSpec, first: int, filters: int) -> dict[int, int]:
    """Return which of the filters from ``first`` on hand on which channel, both counted within their groups."""
    d, c = spec.out_channels // spec.groups, spec.in_channels // spec.groups
    return {index: (first + index) % d for index in range(filters) if (first + index) % d < c}


def _central_tap(spec: ConvSpec, group: FilterGroup) -> Ints:
    """Return the tap of a group's kernel at the position where the embedding law puts a kernel of one tap."""
    return tuple(
        (embedding_offset(window, 1, 1) - embedding_offset(window, extent, dilation)) // dilation
        for window, extent, dilation in zip(spec.kernel, group.kernel, group.dilation, strict=True)
    )


@torch.no_grad()
def initialize_layer_(
    plan: LayerPlan,
    parameters: Sequence[Sequence[tuple[Tensor, Tensor | None]]],
    *,
    rule: str = DEFAULT_RULE,
    around: Surroundings = Surroundings(),
    generator: torch.Generator | None = None,
) -> None:
    """Draw the parameters of one layer, given as (weight, bias) for each group of each stage, in place."""
    for draws, pairs in zip(RULES.get(rule)(plan, around), parameters, strict=True):
        for draw, (weight, bias) in zip(draws, pairs, strict=True):
            _draw_(weight, draw.shape, draw.scale, generator)
            for index, channel in draw.passed.items():
                weight[index] = 0
                weight[(index, channel, *draw.tap)] = 1
            if bias is not None:
                _draw_(bias, "uniform", draw.bias_scale, generator)


def _draw_(tensor: Tensor, shape: str, scale: float, generator: torch.Generator | None) -> None:
    if scale == 0 or tensor.is_meta:
        tensor.zero_()
        return
    device = generator.device if generator is not None else torch.device("cpu")
    drawn = torch.empty(tensor.shape, device=device, dtype=torch.float32)
    if shape == "normal":
        drawn.normal_(0, scale, generator=generator)
    else:
        drawn.uniform_(-scale, scale, generator=generator)
    tensor.copy_(drawn)
