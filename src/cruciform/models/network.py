"""Base classes of all families: a network is built from a config, which is checked when it is created."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from cruciform.errors import OptionError, ShapeError
from cruciform.models.efficient_layers import find_layer
from cruciform.nn.init_rules import DEFAULT_RULE
from cruciform.registry import Registry
from cruciform.schemes import DENSE, Scheme
from cruciform.spec import ConvSpec


class Network(nn.Module):
    """Base of the zoo's networks.

    Attributes:
        config: What the network was built from.
        exceptions: Layers that another non-linearity than a ReLU follows, for initialization.
        siblings: Layers, by name, that read the same input and so share their fan-out, for initialization.
        biases: Layers, by name, whose biases start at another value than the rule's.
        fitted_on: How many training images ``fit_`` asks for.
        fitted: The layers that it sets, which a conversion for training leaves as they are.
        rule: The rule of initialization that it trains best from.
    """

    exceptions: Mapping[str, str | None] = {}
    siblings: Sequence[Sequence[str]] = ()
    biases: Mapping[str, float] = {}
    fitted_on: int = 0
    fitted: tuple[str, ...] = ()
    rule: str = DEFAULT_RULE

    def __init__(self, config: "NetworkConfig") -> None:
        super().__init__()
        self.config = config

    def fit_(self, images: Tensor) -> None:
        """Set layers that are computed from training images instead of being learned; none by default."""

    def check_channels(self, x: Tensor) -> None:
        """Raise if the input has the wrong channels or rank."""
        config = self.config
        if x.ndim != 4 or x.shape[1] != config.in_channels:
            raise ShapeError(
                f"this network takes inputs of (batch, {config.in_channels}, height, width), not {tuple(x.shape)}; "
                "for other channels create it with in_channels=..."
            )


@dataclass(frozen=True, kw_only=True)
class NetworkConfig(ABC):
    """Base of all configs: the options that every network takes.

    Attributes:
        num_classes: Number of classes.
        in_channels: Channels of the images.
        input_size: Height and width of the images that the network is built for.
        smallest_input: Height and width of the smallest images that the family can be built for.
    """

    smallest_input: ClassVar[int] = 32

    num_classes: int = 1000
    in_channels: int = 3
    input_size: int = 224

    def __post_init__(self) -> None:
        for name in ("num_classes", "in_channels", "input_size"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise OptionError(f"{name} must be a positive integer, not {value!r}")

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of one image."""
        return (self.in_channels, self.input_size, self.input_size)

    @abstractmethod
    def build(self) -> Network:
        """Build the network."""


MODELS: Registry[NetworkConfig] = Registry("network", package="cruciform.models", group="cruciform.models")
"""All networks of the zoo by name. A family is a file of this package, or an entry point of another package."""


def conv_layer(spec: ConvSpec, scheme: str | Scheme = DENSE) -> nn.Module:
    """Return the layer that a scheme makes of a convolution: torch's own where the plan is dense.

    Args:
        spec: The convolution.
        scheme: One that has a plan, ``lr``, or an efficient layer, ``separable``; several with ``or`` between:
            ``separable or full`` keeps the layer dense that reads the image.
    """
    return find_layer(scheme)(spec)


def same_conv(c: int, d: int, kernel: int, *, stride: int = 1, bias: bool = True) -> ConvSpec:
    """Return a square convolution padded so that stride 1 keeps the size, as Caffe's models write it."""
    return ConvSpec(c, d, (kernel, kernel), stride=stride, padding=kernel // 2, bias=bias)


def is_normed(norm: str) -> bool:
    """Return whether a batch norm follows the convolutions, which have no bias then; raise at other norms.

    Args:
        norm: ``none``, as the paper's networks are, or ``batch``.
    """
    if norm not in ("none", "batch"):
        raise OptionError(f"norm={norm!r} is neither 'none' nor 'batch'")
    return norm == "batch"


def pooled(size: int, kernel: int, stride: int, padding: int = 0) -> int:
    """Return the size after pooling with the rounding of Caffe: up, but no window starts outside."""
    result = -(-(size + 2 * padding - kernel) // stride) + 1
    return result - 1 if (result - 1) * stride >= size + padding else result
