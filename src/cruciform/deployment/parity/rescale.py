"""A copy of a network with rescaled weights, so that its outputs differ between inputs.

It is exported with the same operations as the network, so an engine can be compared with PyTorch on it where the
network's own outputs carry no information: an untrained network may shrink its signal at each layer, or multiply whole
blocks by 0. Each tensor is scaled by one factor, so weights that are equal or 0 stay so: rewrites may depend on that.
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from cruciform.deployment.parity.control import is_matrix, random_like
from cruciform.errors import DeployError, first_line, reraise_as
from cruciform.nn.composite import CompositeConv

SMALL = 0.1
"""Per-channel or per-block scales with a smaller RMS than this are rescaled to 1."""


def rescaled(model: nn.Module, images: Tensor) -> nn.Module:
    """Return a copy in evaluation mode whose layer outputs have a standard deviation over inputs of about 1.

    Args:
        model: The network; it is not changed.
        images: Several different inputs.

    Raises:
        DeployError: The copy fails, or returns NaN or Inf.
    """
    made = copy.deepcopy(model).eval()
    with torch.no_grad(), reraise_as(DeployError, lambda error: f"its weights can't be rescaled: {first_line(error)}"):
        for name, value in made.named_parameters():
            if not is_matrix(value) and "bias" not in name.rpartition(".")[2] and _size(value) < SMALL:
                value.copy_(value / _size(value) if _size(value) else torch.ones_like(value))
        handles = [
            module.register_forward_hook(
                _Once(_estimate_ if isinstance(module, _BatchNorm) else _scale_), with_kwargs=True
            )
            for module in made.modules() if isinstance(module, _BatchNorm | _ConvNd | nn.Linear | CompositeConv)
        ]  # fmt: skip
        outputs = made(images.clone())
        for handle in handles:
            handle.remove()
        if not bool(outputs.isfinite().all()):
            raise DeployError("its weights can't be rescaled: it then returns NaN or Inf")
    return made


class _Once:
    """A hook that changes a module on its first call and runs it again, so that later layers read the new output."""

    def __init__(self, change_: Any) -> None:
        self._change_: Any = change_

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> Tensor:
        if self._change_ is None:
            return output
        change_, self._change_ = self._change_, None
        change_(module, (*args, *kwargs.values())[0], output)
        changed: Tensor = module.forward(*args, **kwargs)
        return changed


def _scale_(layer: nn.Module, inputs: Tensor, output: Tensor) -> None:
    """Scale a layer's last weights to an output std over inputs of 1; draw weights that are all 0."""
    zero = [value for value in layer.parameters(recurse=False) if is_matrix(value) and not value.any()]
    for value in zero:
        value.copy_(random_like(value))
    spread = _spread(layer.forward(inputs) if zero else output)
    last = layer.stage_parameters()[-1] if isinstance(layer, CompositeConv) else [(layer.weight, None)]
    for weight, _ in last if spread else ():
        weight.div_(spread)  # type: ignore[operator]


def _estimate_(norm: nn.Module, inputs: Tensor, output: Tensor) -> None:
    """Set the running statistics of a batch norm to those of its input."""
    axes = [axis for axis in range(inputs.ndim) if axis != 1]
    if isinstance(norm.running_mean, Tensor) and isinstance(norm.running_var, Tensor):
        norm.running_mean.copy_(inputs.mean(axes))
        norm.running_var.copy_(inputs.var(axes).clamp_min(torch.finfo(inputs.dtype).tiny))


def _spread(outputs: Tensor) -> float:
    return float(outputs.var(0).mean().sqrt())


def _size(value: Tensor) -> float:
    return float(value.square().mean().sqrt())
