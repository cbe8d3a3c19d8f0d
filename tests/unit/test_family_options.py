"""Options of the paper's families that the paper does not have: narrower networks, and batch norms."""

import pytest
import torch
from torch import nn

import cruciform
from cruciform.errors import OptionError
from cruciform.nn.composite import CompositeConv

VGG_NETWORKS = ["vgg11_gmp", "vgg11_gmp_sf", "vgg11_gmp_lr", "vgg11_gmp_lr_join_wfull", "vgg11_gmp_lr_lde"]
NIN_NETWORKS = ["nin", "nin_c3", "nin_c3_lr"]


def convolutions(model: nn.Module) -> list[nn.Module]:
    inner = {part for layer in model.modules() if isinstance(layer, CompositeConv) for part in layer.modules()}
    return [
        layer
        for layer in model.modules()
        if isinstance(layer, CompositeConv) or (isinstance(layer, nn.Conv2d) and layer not in inner)
    ]


def test_half_the_width_has_the_macs_of_arithmetic() -> None:
    # (channels, filters, side) of the convolutions, then the fully connected layers, by hand.
    convs = [(3, 32, 44), (32, 64, 22), (64, 128, 11), (128, 128, 11), (128, 256, 5), (256, 256, 5), (256, 256, 2)]
    convs.append((256, 256, 2))
    macs = sum(9 * c * d * side * side for c, d, side in convs) + 256 * 2048 + 2048 * 2048 + 2048 * 100
    model = cruciform.create_model("vgg11_gmp", width=0.5, norm="batch", input_size=44, num_classes=100)
    counted = cruciform.profile(model, input_size=(3, 44, 44))
    assert sum(layer.macs for layer in counted.layers if "norm" not in layer.name) == macs


@pytest.mark.parametrize("name", VGG_NETWORKS)
def test_every_convolution_has_a_norm_in_the_place_of_its_bias(name: str) -> None:
    model = cruciform.create_model(name, width=0.25, norm="batch", input_size=44, num_classes=5)
    norms = [layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d)]
    assert len(norms) == len(convolutions(model)) == 8
    assert not any("bias" in key for key, _ in model.named_parameters() if key.startswith("features.conv"))
    assert model(torch.randn(2, 3, 44, 44)).shape == (2, 5)


@pytest.mark.parametrize("name", NIN_NETWORKS)
def test_the_classes_keep_their_bias_and_have_no_norm(name: str) -> None:
    model = cruciform.create_model(name, norm="batch")
    norms = [layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d)]
    assert len(norms) == len(convolutions(model)) - 1
    biases = [key for key, _ in model.named_parameters() if key.endswith("bias") and "norm" not in key]
    assert biases == ["features.cccp3_2.bias"]
    assert model(torch.randn(2, 3, 32, 32)).shape == (2, 10)


@pytest.mark.parametrize("name", ["vgg11_gmp_lr", "nin_c3_lr"])
def test_without_the_option_the_network_is_the_papers(name: str) -> None:
    model = cruciform.create_model(name)
    assert not any(isinstance(layer, nn.BatchNorm2d) for layer in model.modules())


@pytest.mark.parametrize("options", [{"norm": "layer"}, {"width": 0}, {"width": 9}])
def test_other_values_are_refused_with_what_is_allowed(options: dict[str, object]) -> None:
    with pytest.raises(OptionError, match="neither 'none' nor 'batch'|above 0 and at most 8"):
        cruciform.create_model("vgg11_gmp", **options)
