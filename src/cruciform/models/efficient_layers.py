"""Efficient layers: what else a network can have in place of a k×k convolution of c to d channels, by name.

===================  ==========================================================  =====================
name                 layer                                                       as in
===================  ==========================================================  =====================
``grouped:4``        channel shuffle → k×k in 4 groups                           ResNeXt, ShuffleNet
``separable``        k×k depthwise → norm, ReLU → 1×1                            MobileNetV1
``bottleneck:0.25``  1×1 to d/4 → norm, ReLU → k×k → norm, ReLU → 1×1 to d       ResNet
===================  ==========================================================  =====================

Low-rank layers are compared with these at equal measured time, so each has its usual form, made of torch's modules.
With norms and ReLUs inside they have no plan: networks are built with them, trained convolutions are not converted.

- The ReLUs inside are the usual ones also where the network has other activations, and the cheapest to deploy.
- Norms inside are batch norms, and only where the convolution has no bias: there the network has a norm after it. With
  a bias (the paper's networks) all convolutions of the layer have one, and no norms are between.
- The shuffle is *before* the grouped convolution, so that engines can fold a norm after the layer into it. Without a
  shuffle no group would see another's channels in a network whose layers are all grouped.
- The stride is that of the k×k convolution; the 1×1 convolutions have none.
- A layer that reads the image (at most 4 channels) is refused: ``separable or full`` keeps it dense.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod
from typing import NamedTuple, TypeAlias

from torch import Tensor, nn

from cruciform.errors import PlanError, UnknownNameError
from cruciform.nn.composite import CompositeConv
from cruciform.nn.inspect import torch_convolution
from cruciform.registry import Registry
from cruciform.schemes import OR, SCHEMES, Scheme, find_scheme, first_that_applies, make_plan
from cruciform.spec import ConvSpec

LayerMaker: TypeAlias = Callable[[ConvSpec], nn.Module]
IMAGE_CHANNELS = 4
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class EfficientLayer(NamedTuple):
    """A kind of layer.

    Attributes:
        read: Reads what is after the colon, and returns what makes the layer of a convolution.
        example: How it is written.
    """

    read: Callable[[str], LayerMaker]
    example: str


EFFICIENT_LAYERS: Registry[EfficientLayer] = Registry("efficient layer")


def efficient_layer(example: str) -> Callable[[Callable[[str], LayerMaker]], Callable[[str], LayerMaker]]:
    """Register the decorated function under the name that the example begins with."""

    def register(read: Callable[[str], LayerMaker]) -> Callable[[str], LayerMaker]:
        EFFICIENT_LAYERS.add(example.partition(":")[0], EfficientLayer(read, example))
        return read

    return register


class ConvChain(nn.Module):
    """Convolutions in sequence, with a batch norm and a ReLU between.

    Args:
        specs: The convolutions; one with a bias has no norm after it.
    """

    def __init__(self, *specs: ConvSpec) -> None:
        super().__init__()
        self.convs = nn.ModuleList(map(torch_convolution, specs))
        self.norms = nn.ModuleList(
            nn.Identity() if spec.bias else BATCH_NORMS[spec.rank - 1](spec.out_channels) for spec in specs[:-1]
        )
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """Run the convolutions."""
        for conv, norm in zip(self.convs, self.norms, strict=False):
            x = self.act(norm(conv(x)))
        last: Tensor = self.convs[-1](x)
        return last


@efficient_layer("grouped:4")
def grouped(groups: str) -> LayerMaker:
    """Convolve each of several groups of channels by itself, after a shuffle that mixes them."""
    if not groups.isdecimal() or int(groups) < 2:
        raise PlanError(f"'grouped:{groups}' needs a number of groups, at least 2, as 'grouped:4'")
    number = int(groups)

    def make(spec: ConvSpec) -> nn.Module:
        _refuse_unsuited(spec, f"grouped:{number}")
        if spec.in_channels % number or spec.out_channels % number:
            raise PlanError(
                f"'grouped:{number}' needs channels that {number} divides, and this layer has {spec.in_channels} → "
                f"{spec.out_channels}; change its width, or keep it dense with 'grouped:{number} or full'"
            )
        return nn.Sequential(nn.ChannelShuffle(number), torch_convolution(replace(spec, groups=number)))

    return make


@efficient_layer("separable")
def depthwise_separable(text: str) -> LayerMaker:
    """Filter each channel by itself, then mix the channels by a 1×1 convolution."""
    if text:
        raise PlanError(f"'separable:{text}' has an option, and 'separable' takes none")

    def make(spec: ConvSpec) -> nn.Module:
        _refuse_unsuited(spec, "separable")
        c = spec.in_channels
        return ConvChain(replace(spec, out_channels=c, groups=c), _pointwise(spec, c, spec.out_channels))

    return make


@efficient_layer("bottleneck:0.25")
def bottleneck(share: str) -> LayerMaker:
    """Filter few channels: a 1×1 convolution before makes them, one after makes the layer's."""
    try:
        fraction = float(share)
    except ValueError:
        fraction = 0.0
    if not 0 < fraction <= 1:
        raise PlanError(
            f"'bottleneck:{share}' needs a fraction of the layer's filters, above 0 and at most 1, as 'bottleneck:0.25'"
        )

    def make(spec: ConvSpec) -> nn.Module:
        _refuse_unsuited(spec, f"bottleneck:{share}")
        few = max(1, round(fraction * spec.out_channels))
        inner = replace(spec, in_channels=few, out_channels=few)
        return ConvChain(_pointwise(spec, spec.in_channels, few), inner, _pointwise(spec, few, spec.out_channels))

    return make


def find_layer(scheme: str | Scheme) -> LayerMaker:
    """Return what makes the layer of a scheme: of efficient layers, of plans, or of the first that applies."""
    if isinstance(scheme, str):
        if OR in scheme:
            return first_that_applies(tuple(map(find_layer, scheme.split(OR))))
        name, _, option = scheme.partition(":")
        if name in EFFICIENT_LAYERS:
            return EFFICIENT_LAYERS.get(name).read(option)
        _refuse_unknown(scheme)  # also where an earlier alternative applies
    return partial(_planned_layer, scheme=scheme)


def _refuse_unknown(scheme: str) -> None:
    try:
        find_scheme(scheme)
    except UnknownNameError:
        SCHEMES.get(scheme, besides=[layer.example for _, layer in EFFICIENT_LAYERS.items()])  # raises with these too


def _planned_layer(spec: ConvSpec, scheme: str | Scheme) -> nn.Module:
    plan = make_plan(spec, scheme)
    return torch_convolution(spec) if plan.is_dense else CompositeConv(plan)


def _pointwise(spec: ConvSpec, c: int, d: int) -> ConvSpec:
    return ConvSpec(c, d, (1,) * spec.rank, bias=spec.bias)


def _refuse_unsuited(spec: ConvSpec, name: str) -> None:
    """Raise unless a convolution is dense, filters, and reads more than the image."""
    problem = (
        "is transposed" if spec.transposed
        else f"has groups={spec.groups}" if spec.groups > 1
        else "has a 1×1 window" if prod(spec.kernel) == 1
        else f"reads only {spec.in_channels}, as those of an image" if spec.in_channels <= IMAGE_CHANNELS
        else None
    )  # fmt: skip
    if problem:
        raise PlanError(
            f"{name!r} replaces dense k×k convolutions of more than {IMAGE_CHANNELS} channels, and this layer "
            f"({spec.in_channels} → {spec.out_channels}) {problem}; keep it dense with '{name} or full'"
        )
