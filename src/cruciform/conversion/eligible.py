"""Which convolutions can be converted, how, and why not the others."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.utils.parametrize import is_parametrized

from cruciform.nn.composite import CompositeConv
from cruciform.nn.inspect import TORCH_CONVOLUTIONS, TRANSPOSED_CONVOLUTIONS, plan_of, spec_of
from cruciform.nn.standardize import SamePadding, standardize_
from cruciform.spec import ConvSpec, join_sizes


@dataclass(frozen=True)
class Adaptation:
    """What a known convolution class does besides convolving, for its replacement.

    Attributes:
        finish: Makes the replacement from the bare layer and the convolution that it replaces.
        fits: Whether trained weights of this kind can be fitted.
        owns: The parameters that its replacement takes over.
    """

    finish: Callable[[CompositeConv, Any], nn.Module]
    fits: bool = False
    owns: frozenset[str] = frozenset({"weight", "bias"})


def _as_it_is(layer: CompositeConv, conv: Any) -> nn.Module:
    return layer


def _same_padded(layer: CompositeConv, conv: Any) -> nn.Module:
    spec = layer.plan.spec
    return nn.Sequential(SamePadding(spec.kernel, spec.stride, spec.dilation), layer)


def _standardized(layer: CompositeConv, conv: Any) -> nn.Module:
    standardize_(layer, conv.eps, None)
    return _same_padded(layer, conv) if getattr(conv, "same_pad", False) else layer


def _scaled(layer: CompositeConv, conv: Any) -> nn.Module:
    standardize_(layer, conv.eps, conv.scale * conv.weight[0].numel() ** 0.5, conv.gain)
    return _same_padded(layer, conv) if getattr(conv, "same_pad", False) else layer


PLAIN_ADAPTATION = Adaptation(_as_it_is, fits=True)
_WITH_GAIN = Adaptation(_scaled, owns=PLAIN_ADAPTATION.owns | {"gain"})

# By the full name of the class, so that none of these libraries need be installed. Any other subclass that computes
# something of its own may compute something else altogether, and is left alone.
ADAPTATIONS: dict[str, Adaptation] = {
    **{f"torch.nn.modules.conv.{kind.__name__}": PLAIN_ADAPTATION for kind in TORCH_CONVOLUTIONS},
    "timm.layers.conv2d_same.Conv2dSame": Adaptation(_same_padded, fits=True),
    "timm.layers.std_conv.StdConv2d": Adaptation(_standardized),
    "timm.layers.std_conv.StdConv2dSame": Adaptation(_standardized),
    "timm.layers.std_conv.ScaledStdConv2d": _WITH_GAIN,
    "timm.layers.std_conv.ScaledStdConv2dSame": _WITH_GAIN,
}


def class_name(module: nn.Module) -> str:
    """Return the full name of a module's class."""
    return f"{type(module).__module__}.{type(module).__qualname__}"


def is_convolution(module: nn.Module) -> bool:
    """Return whether the module is a convolution of any kind, ours included."""
    return isinstance(module, _ConvNd | CompositeConv)


def why_skip(module: nn.Module) -> str | None:
    """Return why a convolution is left alone, or None where it can be converted."""
    if isinstance(module, CompositeConv):
        return "already made of basis filters"
    if not isinstance(module, TORCH_CONVOLUTIONS):
        return f"{class_name(module)} is not a convolution of rank 1 to 3"
    extents: object = module.kernel_size
    if not isinstance(extents, tuple):
        return _why_unknown(module) or f"{class_name(module)} has kernel_size {extents!r}"
    if module.weight.is_complex():
        return "complex weights are not supported"
    return _why_no_saving(module) or _why_unknown(module)


def _why_no_saving(conv: Any) -> str | None:
    window = join_sizes(conv.kernel_size)
    if conv.groups > 1:
        kind = "depthwise" if conv.groups == conv.in_channels else "grouped"
        return f"{kind} (groups={conv.groups}): already sparse"
    long = sum(extent > 1 for extent in conv.kernel_size)
    if long == 0:
        return f"{window}: nothing to save"
    return f"{window}: already a 1-D filter" if long == 1 else None


def _why_unknown(conv: nn.Module) -> str | None:
    if is_parametrized(conv):
        return None  # refusal says what to do
    known = class_name(conv) in ADAPTATIONS or _computes_as_its_base(conv)
    return None if known else f"{class_name(conv)} overrides forward"


def _computes_as_its_base(conv: nn.Module) -> bool:
    """Return whether a subclass only has other constructor arguments or initial values."""
    base = next(kind for kind in TORCH_CONVOLUTIONS if isinstance(conv, kind))
    methods = ("__call__", "__getattr__", "forward", "_conv_forward", "_output_padding")
    return all(getattr(type(conv), name, None) is getattr(base, name, None) for name in methods)


def refusal(module: nn.Module) -> str | None:
    """Return why an eligible convolution must not be converted, and what to do; None if it may be."""
    if is_parametrized(module) or hasattr(module, "weight_g"):
        return "its weight is parametrized (weight norm, spectral norm, …): call remove_parametrizations first"
    if "forward" in vars(module):
        return "its forward method was patched, which its replacement would lose"
    return why_hooked(module) or _why_laden(module)


def _why_laden(conv: nn.Module) -> str | None:
    more = (conv._parameters.keys() - adaptation_of(conv).owns) | conv._buffers.keys() | conv._modules.keys()
    if more:
        return f"it also has {', '.join(sorted(more))}, which its replacement would lose"
    weights = conv._parameters.values()
    if any(getattr(weight, "_backward_hooks", None) for weight in weights):
        return "one of its weights has a hook, which its replacement would lose"
    return None


def why_hooked(module: nn.Module) -> str | None:
    """Return why a module with hooks must not be replaced; None where it has none."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    if any(getattr(module, name, None) for name in hooks):
        return "it has hooks, which its replacement would lose: remove them first, and register them again afterwards"
    return None


def adaptation_of(module: nn.Module) -> Adaptation:
    """Return how a convolution of a known kind is replaced."""
    return ADAPTATIONS.get(class_name(module), PLAIN_ADAPTATION)


def in_short(spec: ConvSpec) -> str:
    """Return a convolution in short: ``3×3, 64 → 128, stride 2×2``."""
    stride = f", stride {join_sizes(spec.stride)}" if max(spec.stride) > 1 else ""
    dilation = f", dilation {join_sizes(spec.dilation)}" if max(spec.dilation) > 1 else ""
    kind = "transposed " if spec.transposed else ""
    return f"{kind}{join_sizes(spec.kernel)}, {spec.in_channels} → {spec.out_channels}{stride}{dilation}"


def name_in_short(module: nn.Module) -> str:
    """Return a convolution in short where it is one that plans describe, else the name of its class."""
    if isinstance(module, TRANSPOSED_CONVOLUTIONS):
        return in_short(spec_of(module))
    plan = plan_of(module)
    return in_short(plan.spec) if plan else type(module).__name__
