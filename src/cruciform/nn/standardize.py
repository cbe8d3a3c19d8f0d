"""Weight standardization and SAME padding, which some libraries build into their convolutions."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrize import register_parametrization

from cruciform.nn.composite import CompositeConv
from cruciform.nn.symbolic import leaf_call
from cruciform.spec import Ints


class SamePadding(nn.Module):
    """Pads as TensorFlow's "SAME" does: by the size of the input, so that ceil(n / stride) outputs come out."""

    def __init__(self, kernel: Ints, stride: Ints, dilation: Ints) -> None:
        super().__init__()
        self.axes = tuple(zip(kernel, stride, dilation, strict=True))

    def forward(self, x: Tensor) -> Tensor:
        """Return the padded input."""
        traced: Tensor | None = leaf_call(self, x)
        if traced is not None:
            return traced
        pads: list[int] = []
        for axis in reversed(range(len(self.axes))):
            kernel, stride, dilation = self.axes[axis]
            n = x.shape[axis - len(self.axes)]
            total = max(0, (-(-n // stride) - 1) * stride + (kernel - 1) * dilation + 1 - n)
            pads += [total // 2, total - total // 2]
        return F.pad(x, pads)


class StandardizedWeight(nn.Module):
    """A parametrization: every filter is shifted and scaled to zero mean and unit variance, and perhaps scaled on.

    Args:
        filters: How many filters there are.
        eps: Added to the variance.
        scale: What filters are scaled to by a learned gain for each; left out: neither.
    """

    def __init__(self, filters: int, eps: float, scale: float | None = None) -> None:
        super().__init__()
        self.eps = eps
        self.scale = scale
        self.gain = None if scale is None else nn.Parameter(torch.ones(filters))

    def forward(self, weight: Tensor) -> Tensor:
        """Return the standardized filters."""
        rows = weight.reshape(1, weight.shape[0], -1)
        gain = None if self.gain is None or self.scale is None else self.gain * self.scale
        return F.batch_norm(rows, None, None, gain, training=True, momentum=0.0, eps=self.eps).reshape_as(weight)


def standardize_(layer: CompositeConv, eps: float, gamma: float | None, gain: Tensor | None = None) -> CompositeConv:
    """Standardize the filters of every group of a layer, in place.

    Args:
        layer: The layer.
        eps: Added to the variances.
        gamma: With a learned gain, and scaled by gamma / sqrt(fan-in), as in normalizer-free networks. It makes up for
            a non-linearity, so stages without one after them have none.
        gain: What the gains of the last stage begin with, one for each filter; left out: 1. Frozen, all are.
    """
    has_activation = [stage.activation is not None for stage in layer.plan.stages[:-1]] + [True]
    for stage, makes_up in zip(layer.parameter_names, has_activation, strict=True):
        first = 0
        for name, _ in stage:
            weight: Tensor = getattr(layer, name)
            scale = None if gamma is None else (gamma if makes_up else 1.0) * weight[0].numel() ** -0.5
            standard = StandardizedWeight(weight.shape[0], eps, scale).to(weight.device, weight.dtype)
            if gain is not None and standard.gain is not None:
                standard.gain.requires_grad_(gain.requires_grad)
                if stage is layer.parameter_names[-1]:
                    with torch.no_grad():
                        standard.gain.copy_(gain.flatten()[first : first + len(weight)])
            first += len(weight)
            register_parametrization(layer, name, standard)
    return layer
