"""Non-linearities by name: how a layer runs one between its stages, and the gain that compensates it.

The paper's condition (its appendix) keeps the variance of the gradient over a layer and the non-linearity f
after it: gain² · E[f'(z)²] = 1 for a standard normal z. So gain² is 2 for a ReLU, 1 for none, and for any
other f it follows from its slope, integrated here.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from cruciform.registry import Registry


@dataclass(frozen=True)
class Activation:
    """A non-linearity.

    Attributes:
        apply: The function on tensors.
        slope: Its derivative at a number.
    """

    apply: Callable[[Tensor], Tensor]
    slope: Callable[[float], float]


def _normal_density(z: float) -> float:
    return math.exp(-z * z / 2) / math.sqrt(2 * math.pi)


def _normal_below(z: float) -> float:
    return (1 + math.erf(z / math.sqrt(2))) / 2


def _sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z))


def _silu_slope(z: float) -> float:
    return _sigmoid(z) * (1 + z * (1 - _sigmoid(z)))


def _mish_slope(z: float) -> float:
    squashed = math.tanh(math.log1p(math.exp(z)))
    return squashed + z * (1 - squashed**2) * _sigmoid(z)


_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772, 1.0507009873554805

ACTIVATIONS: Registry[Activation] = Registry("activation")
ACTIVATIONS.add("relu", Activation(F.relu, lambda z: float(z > 0)))
ACTIVATIONS.add("relu6", Activation(F.relu6, lambda z: float(0 < z < 6)))
ACTIVATIONS.add("leaky_relu", Activation(F.leaky_relu, lambda z: 1.0 if z > 0 else 0.01))
ACTIVATIONS.add("elu", Activation(F.elu, lambda z: 1.0 if z > 0 else math.exp(z)))
ACTIVATIONS.add("selu", Activation(F.selu, lambda z: _SELU_SCALE * (1.0 if z > 0 else _SELU_ALPHA * math.exp(z))))
ACTIVATIONS.add("gelu", Activation(F.gelu, lambda z: _normal_below(z) + z * _normal_density(z)))
ACTIVATIONS.add("silu", Activation(F.silu, _silu_slope))
ACTIVATIONS.add("mish", Activation(F.mish, _mish_slope))
ACTIVATIONS.add("hardswish", Activation(F.hardswish, lambda z: 0.0 if z <= -3 else 1.0 if z >= 3 else (2 * z + 3) / 6))
ACTIVATIONS.add("tanh", Activation(torch.tanh, lambda z: 1 - math.tanh(z) ** 2))
ACTIVATIONS.add("sigmoid", Activation(torch.sigmoid, lambda z: _sigmoid(z) * (1 - _sigmoid(z))))


@lru_cache
def gain_squared(activation: str | None) -> float:
    """Return gain² = 1 / E[f'(z)²] for the named non-linearity; 1 for None."""
    if activation is None:
        return 1.0
    slope, steps, reach = ACTIVATIONS.get(activation).slope, 40_000, 10.0
    width = 2 * reach / steps
    # Mid-points, so that a kink at 0, as the ReLU has, falls between two of them.
    points = (-reach + (index + 0.5) * width for index in range(steps))
    return 1 / (width * sum(_normal_density(z) * slope(z) ** 2 for z in points))
