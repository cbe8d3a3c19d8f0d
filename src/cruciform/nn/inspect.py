"""Reads specs, plans and parameters off torch's modules, so that all else can speak plans."""

from torch import Tensor, nn

from cruciform.nn.composite import CompositeConv
from cruciform.plan import LayerPlan
from cruciform.schemes import full
from cruciform.spec import ConvSpec

PLAIN_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def spec_of(conv: nn.Conv1d | nn.Conv2d | nn.Conv3d) -> ConvSpec:
    """Returns the spec of a plain convolution."""
    return ConvSpec(
        conv.in_channels,
        conv.out_channels,
        kernel=conv.kernel_size,
        stride=conv.stride,
        padding=conv.padding,
        dilation=conv.dilation,
        groups=conv.groups,
        bias=conv.bias is not None,
        padding_mode=conv.padding_mode,
    )


def plan_of(module: nn.Module) -> LayerPlan | None:
    """Returns the plan that a layer runs: its own, or the dense one; None for all that is not such a layer.

    A linear layer is a convolution with a window of one, and has its plan.
    """
    if isinstance(module, CompositeConv):
        return module.plan
    if isinstance(module, PLAIN_CONVOLUTIONS):
        return full(spec_of(module))
    if isinstance(module, nn.Linear):
        return full(ConvSpec(module.in_features, module.out_features, (1,), bias=module.bias is not None))
    return None


def stage_parameters_of(module: nn.Module) -> list[list[tuple[Tensor, Tensor | None]]]:
    """Returns for each stage of the layer's plan the (weight, bias) of each group."""
    if isinstance(module, CompositeConv):
        return module.stage_parameters()
    if isinstance(module, (*PLAIN_CONVOLUTIONS, nn.Linear)):
        return [[(module.weight, module.bias)]]
    raise TypeError(f"{type(module).__name__} runs no plan; ask plan_of first")
