"""Read specs, plans and parameters from torch's modules."""

import hashlib
from collections.abc import Mapping, Sequence
from operator import index
from typing import Any, SupportsIndex

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrize import is_parametrized

from cruciform.errors import PlanError, SpecError
from cruciform.nn.composite import CompositeConv
from cruciform.nn.transposed_convolutions import swap_channels
from cruciform.plan import LayerPlan
from cruciform.schemes import full
from cruciform.spec import ConvSpec

PLAIN_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED_CONVOLUTIONS = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
TORCH_CONVOLUTIONS = (*PLAIN_CONVOLUTIONS, *TRANSPOSED_CONVOLUTIONS)


def spec_of(conv: nn.Module) -> ConvSpec:
    """Return the spec of a convolution of torch, plain or transposed, whose numbers may be NumPy's.

    Where its weight was exchanged for one of other channels, as is usual for grey images, the weight counts: it runs.
    """
    if not isinstance(conv, TORCH_CONVOLUTIONS):
        raise TypeError(f"{type(conv).__name__} is not a convolution of torch of rank 1 to 3")
    groups, transposed = index(conv.groups), isinstance(conv, TRANSPOSED_CONVOLUTIONS)
    channels = index(conv.in_channels), index(conv.out_channels)
    weight = conv._parameters.get("weight")
    if weight is not None and type(conv) in TORCH_CONVOLUTIONS:
        first, second = weight.shape[:2]
        channels = (first, second * groups) if transposed else (second * groups, first)
    return ConvSpec(
        *channels,
        kernel=_numbers(conv.kernel_size),
        stride=_numbers(conv.stride),
        padding=_numbers(conv.padding),
        dilation=_numbers(conv.dilation),
        groups=groups,
        bias=conv.bias is not None,
        padding_mode=conv.padding_mode,
        transposed=transposed,
        output_padding=_numbers(conv.output_padding) if transposed else 0,
    )


def torch_convolution(
    spec: ConvSpec, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None
) -> nn.Module:
    """Return torch's convolution of a spec, plain or transposed, with equal padding on both sides."""
    if any(before != after for before, after in spec.padding):
        raise SpecError(f"torch's convolutions pad both sides equally; padding={spec.padding} is not equal")
    kind: Any = (TRANSPOSED_CONVOLUTIONS if spec.transposed else PLAIN_CONVOLUTIONS)[spec.rank - 1]
    conv: nn.Module = kind(
        spec.in_channels,
        spec.out_channels,
        kernel_size=spec.kernel,
        stride=spec.stride,
        padding=tuple(before for before, _ in spec.padding),
        dilation=spec.dilation,
        groups=spec.groups,
        bias=spec.bias,
        padding_mode=spec.padding_mode,
        device=device,
        dtype=dtype,
        **({"output_padding": spec.output_padding} if spec.transposed else {}),
    )
    return conv


def kernel_of(conv: nn.Module) -> Tensor:
    """Return the weight of a convolution as plans have it, (d, c, window); transposed ones store (c, d, window)."""
    weight = conv.get_parameter("weight")
    return swap_channels(weight, conv.groups) if isinstance(conv, TRANSPOSED_CONVOLUTIONS) else weight


def _numbers(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return tuple(map(_numbers, value))
    return index(value) if isinstance(value, SupportsIndex) else value


def plan_of(module: nn.Module) -> LayerPlan | None:
    """Return the plan that a layer runs: its own, or the dense one; None for other modules.

    A linear layer is a convolution with a window of one, and has its plan.
    """
    if isinstance(module, CompositeConv):
        return module.plan
    if isinstance(module, PLAIN_CONVOLUTIONS):
        try:
            return full(spec_of(module))
        except SpecError:
            if type(module) in PLAIN_CONVOLUTIONS:
                raise
            return None  # a subclass may mean something else by its numbers
    if isinstance(module, nn.Linear):
        return full(ConvSpec(module.in_features, module.out_features, (1,), bias=module.bias is not None))
    return None


def stage_parameters_of(module: nn.Module) -> list[list[tuple[Tensor, Tensor | None]]]:
    """Return for each stage of the layer's plan the (weight, bias) of each group, as they are stored.

    For a parametrized weight (a standardized one, for instance) it is the underlying tensor, which can be written to.
    """
    return [[(_stored(module, weight), getattr(module, bias)) for weight, bias in stage] for stage in _names_of(module)]


def stage_weights_of(module: nn.Module) -> list[list[Tensor]]:
    """Return for each stage of the layer's plan the weight of each group, as it is computed with."""
    return [[getattr(module, weight) for weight, _ in stage] for stage in _names_of(module)]


def refuse_unready(model: nn.Module) -> None:
    """Raise if something is not a network, or has uninitialized lazy layers."""
    if not isinstance(model, nn.Module):
        raise SpecError(
            f"{model!r:.80} is not a network; give a torch.nn.Module, for instance cruciform.create_model('nin') or "
            "timm.create_model('resnet18')"
        )
    for name, module in model.named_modules():
        if any(map(is_lazy, module.parameters(recurse=False))):
            raise SpecError(
                f"{name or 'the network'} is a lazy layer whose channels are unknown; run the network once first"
            )


def _names_of(module: nn.Module) -> Sequence[Sequence[tuple[str, str]]]:
    if isinstance(module, CompositeConv):
        return module.parameter_names
    if isinstance(module, (*TORCH_CONVOLUTIONS, nn.Linear)):
        return [[("weight", "bias")]]
    raise TypeError(f"{type(module).__name__} has no plan; check with plan_of first")


def _stored(module: nn.Module, name: str) -> Tensor:
    if not is_parametrized(module, name):
        tensor: Tensor = getattr(module, name)
        if name not in module._parameters:
            raise PlanError(
                f"the {name} of this {type(module).__name__} is recomputed at every step (torch.nn.utils.weight_norm "
                "or spectral_norm, pruning?), so it can't be initialized; initialize before that, or remove it first"
            )
        return tensor
    parametrization = getattr(module.parametrizations, name)
    if not hasattr(parametrization, "original"):
        raise PlanError(
            f"the {name} of this {type(module).__name__} is computed from several tensors (weight norm?), so it "
            "can't be initialized; initialize before you parametrize it, or call remove_parametrizations first"
        )
    stored: Tensor = parametrization.original
    return stored


def checksum(tensors: Mapping[str, Tensor], about: str = "") -> str:
    """Return a checksum of named tensors, of any type and on any device, and of a text."""
    digest = hashlib.sha256(about.encode())
    for name, tensor in tensors.items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
