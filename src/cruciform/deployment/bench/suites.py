"""The suites of ``bench``: which networks are compared with which."""

from collections.abc import Mapping
from typing import Final

import torch
from torch import nn

from cruciform.conversion.convert import convert
from cruciform.deployment.bench.bench import Suite
from cruciform.errors import OptionError
from cruciform.models.zoo import create_model
from cruciform.registry import did_you_mean
from cruciform.sources.build_network import build_network

AS: Final = " as "
"""Between a network of another library and the scheme that it is converted by."""


def build_suite_network(name: str) -> nn.Module:
    """Return a network of the zoo, or one of another library, as ``monai:UNet-3d as cross3``."""
    torch.manual_seed(0)  # times do not depend on weights, but zeros and subnormal numbers can be faster or slower
    reference, _, scheme = name.partition(AS)
    if ":" not in reference:
        return create_model(reference)
    network, size = build_network(reference, {})
    return convert(network, scheme, input_size=size).model if scheme else network


def _zoo(baseline: str, shorts: Mapping[str, str], input_size: tuple[int, ...]) -> Suite:
    return Suite(baseline, shorts, input_size, build_suite_network)


def _converted(reference: str, short: str, size: tuple[int, ...], schemes: Mapping[str, str]) -> Suite:
    shorts = {f"{reference}{AS}{scheme}": f"{short}{end}" for scheme, end in schemes.items()}
    return Suite(reference, shorts, size, build_suite_network, label=short, keyed_by_batch=len(size) == IMAGE_AXES)


VOLUME_SCHEMES: Final = {"cross3": "", "cross:full=0.25": "_full_quarter", "planes": "_planes"}
IN_BLOCKS: Final = {"cross:block=16": "_blocks"}
"""Thirds of 64 filters fill no blocks of 16, and the UNet has too few filters for a block along each axis."""
OF_TRAINED: Final = {
    f"{family}:rank={percent}%": f"_{family}_{percent}" for family in ("sf", "thin") for percent in (25, 50, 75)
}
"""The schemes of compressed networks, at fractions of the rank; all layers alike, which ``compress`` chooses."""
BY_SCHEME: Final = {"lr": "_lr", "lr-join": "_join", "sf:rank=50%": "_sf_50"}
IMAGE_AXES, IMAGE, VOLUME = 3, (3, 224, 224), (1, 64, 64, 64)
UPWARDS: Final = {"cross3 or sf": "_and_up"}
"""Chains for the UNet's transposed convolutions, to which no cross applies."""
VGG: Final = {f"vgg11_gmp_{name}": name for name in ("lr", "lr_join", "lr_join_wfull")}
SUITES: Final[Mapping[str, tuple[Suite, ...]]] = {
    "vgg": (_zoo("vgg11_gmp", VGG, (3, 224, 224)),),
    "nin": (_zoo("nin", {"nin_c3": "c3", "nin_c3_lr": "c3_lr"}, (3, 32, 32)),),
    "volumes": (
        _converted("monai:UNet-3d", "unet", VOLUME, VOLUME_SCHEMES | UPWARDS),
        _converted("monai:ResNet18-3d", "resnet", VOLUME, VOLUME_SCHEMES | IN_BLOCKS),
    ),
    "resnet": (_converted("timm:resnet18", "resnet18", IMAGE, BY_SCHEME),),
    "compressed": (
        _converted("timm:resnet18", "resnet18", IMAGE, OF_TRAINED),
        _converted("timm:resnet50", "resnet50", IMAGE, OF_TRAINED),
        _converted("torchvision:vgg16_bn", "vgg16", IMAGE, OF_TRAINED),
        _converted("monai:UNet-2d", "unet", (1, 128, 128), OF_TRAINED),
    ),
}
"""Each suite is one comparison or several, each with a dense baseline of its own."""


def find_suite(name: str) -> tuple[Suite, ...]:
    """Return the comparisons of a suite by its name."""
    if name not in SUITES:
        raise OptionError(f"unknown suite {name!r}.{did_you_mean(name, SUITES)} Known: {', '.join(SUITES)}")
    return SUITES[name]
