"""Networks of our families, and of other libraries, that are built of efficient layers."""

from pathlib import Path

import pytest
import torch
from torch import nn

import cruciform
from cruciform.errors import OptionError, PlanError, UnknownNameError
from cruciform.measure.macs import profile
from cruciform.models.efficient_layers import find_layer
from cruciform.models.zoo import create_model
from cruciform.sources.build_network import build_network
from cruciform.spec import ConvSpec
from cruciform.store.directory import Base

PATCHES, LINEAR = 24 * 12 * 31**2, 256 * 10
# Input and output channels of the layers of cifar_fast, and the height of their maps.
LAYERS = ((24, 64, 31), (64, 64, 15), (64, 256, 15), (256, 256, 7), (256, 256, 7), (256, 256, 3))
WEIGHTS = {
    "grouped:2": lambda c, d: 9 * c * d // 2,
    "grouped:4": lambda c, d: 9 * c * d // 4,
    "separable": lambda c, d: 9 * c + c * d,
    "bottleneck:0.5": lambda c, d: c * d // 2 + 9 * d * d // 4 + d * d // 2,
}


def all_layers(scheme: str) -> list[list[str]]:
    return [[scheme, scheme]] * 3


@pytest.mark.parametrize("scheme", WEIGHTS)
def test_networks_cost_what_the_arithmetic_says(scheme: str) -> None:
    macs = PATCHES + LINEAR + sum(WEIGHTS[scheme](c, d) * side**2 for c, d, side in LAYERS)
    assert profile(create_model("cifar_fast", schemes=all_layers(scheme)), (3, 32, 32)).macs == macs


@pytest.mark.parametrize("scheme", WEIGHTS)
def test_a_network_learns_in_one_step_and_all_of_it(scheme: str) -> None:
    torch.manual_seed(0)
    model = create_model("cifar_fast", widths=(16, 32, 32), schemes=all_layers(scheme), input_size=16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.randn(64, 3, 16, 16), torch.randint(10, (64,))
    before = nn.functional.cross_entropy(model(x), y)
    before.backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())
    optimizer.step()
    assert nn.functional.cross_entropy(model(x), y) < before


def test_the_activation_of_the_network_follows_the_last_convolution_of_a_layer() -> None:
    schemes = [["grouped:4", "lr"], ["separable", "full"], ["bottleneck:0.5", "full"]]
    model = create_model("cifar_fast", widths=(16, 32, 32), schemes=schemes)
    blocks = {name.removeprefix("blocks.") for name, after in model.exceptions.items() if after == "gelu"}
    assert blocks - {"whiten"} == {
        "block1.convs.0.1", "block1.convs.1", "block2.convs.0.convs.1", "block2.convs.1", "block3.convs.0.convs.2",
        "block3.convs.1",
    }  # fmt: skip
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    assert {norm.momentum for norm in norms} == {0.4}
    assert len(norms) == 6 + 1 + 2


@pytest.mark.parametrize(
    ("scheme", "layer"), [("grouped:4", "1"), ("separable", "convs.0"), ("bottleneck:0.5", "convs.1")]
)
def test_the_identity_hands_channels_on_but_for_depthwise_layers(scheme: str, layer: str) -> None:
    model = create_model("cifar_fast", widths=(16, 16, 16), schemes=all_layers(scheme))
    conv = model.blocks[0].convs[1].get_submodule(layer)
    x = torch.randn(1, conv.in_channels, 6, 6)
    assert torch.allclose(conv(x), x) is (scheme != "separable")


@pytest.mark.parametrize("scheme", WEIGHTS)
def test_the_half_width_vgg_keeps_the_layer_dense_that_reads_the_image(scheme: str) -> None:
    options = {"width": 0.5, "norm": "batch", "hidden": 64, "input_size": 44, "num_classes": 5}
    with pytest.raises(PlanError, match="3 → 32.* keep it dense with"):
        create_model("vgg11_gmp", scheme=scheme, **options)
    model = create_model("vgg11_gmp", scheme=f"{scheme} or full", **options)
    assert type(model.features.conv1) is nn.Conv2d
    assert type(model.features.conv2) is type(find_layer(scheme)(ConvSpec(32, 64, 3)))
    assert model(torch.randn(2, 3, 44, 44)).shape == (2, 5)


def test_a_number_that_does_not_divide_the_channels_is_refused_with_what_to_change() -> None:
    with pytest.raises(PlanError, match=r"'grouped:5' needs channels that 5 divides.* 24 → 64; change its width"):
        create_model("cifar_fast", schemes=all_layers("grouped:5"))


@pytest.mark.parametrize(
    ("scheme", "message"),
    [
        ("grouped", "at least 2, as 'grouped:4'"),
        ("grouped:1", "at least 2, as 'grouped:4'"),
        ("bottleneck:2", "above 0 and at most 1, as 'bottleneck:0.25'"),
        ("bottleneck:wide", "above 0 and at most 1, as 'bottleneck:0.25'"),
        ("separable:2", "'separable' takes none"),
    ],
)
def test_wrong_options_are_refused_with_what_is_right(scheme: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        create_model("cifar_fast", schemes=all_layers(scheme))
    with pytest.raises(UnknownNameError, match="Did you mean 'separable'"):
        create_model("cifar_fast", schemes=all_layers("full or separabel"))


def test_a_model_directory_rebuilds_the_layers(tmp_path: Path) -> None:
    options = {"widths": [16, 32, 32], "schemes": [["grouped:4", "full"], ["separable"] * 2, ["bottleneck:0.5"]]}
    model = create_model("cifar_fast", **options).eval()
    report = cruciform.plan_conversion(model, "full")
    cruciform.save(model, tmp_path / "saved", report, base=Base("cifar_fast", options))
    x = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(cruciform.load(tmp_path / "saved").eval()(x), model(x))


RESNET = {"widen_factor": 0.125, "conv1_t_size": 3, "conv1_t_stride": 2, "no_max_pool": True}


@pytest.mark.slow  # imports MONAI
@pytest.mark.parametrize("scheme", WEIGHTS)
def test_the_volumes_resnet_has_efficient_layers_and_its_first_and_pointwise_ones(scheme: str, tmp_path: Path) -> None:
    pytest.importorskip("monai")
    options = {**RESNET, "convolutions": f"{scheme} or full"}
    model = build_network("monai:ResNet18-3d", options).model.eval()
    dense = build_network("monai:ResNet18-3d", RESNET).model
    kind = type(find_layer(scheme)(ConvSpec(8, 8, (3, 3, 3))))
    assert type(model.conv1) is type(dense.conv1)
    assert type(model.layer2[0].downsample[0]) is type(dense.layer2[0].downsample[0])
    blocks = [block for layer in (model.layer1, model.layer2, model.layer3, model.layer4) for block in layer]
    assert all(type(conv) is kind for block in blocks for conv in (block.conv1, block.conv2))
    x = torch.randn(1, 1, 16, 16, 16)
    assert model(x).shape == dense.eval()(x).shape
    assert profile(model, x.shape[1:]).macs < profile(dense, x.shape[1:]).macs
    report = cruciform.plan_conversion(model, "full")
    cruciform.save(model, tmp_path / "saved", report, base=Base("monai:ResNet18-3d", options))
    torch.testing.assert_close(cruciform.load(tmp_path / "saved").eval()(x), model(x))


@pytest.mark.slow  # imports MONAI
def test_networks_of_other_libraries_refuse_what_is_no_efficient_layer() -> None:
    pytest.importorskip("monai")
    for scheme, error, message in (
        ("separable", PlanError, "conv1: 'separable' replaces .* keep it dense with 'separable or full'"),
        ("full", OptionError, "replaces no convolution of ResNet"),
        ("lr", OptionError, "has a plan: convert the network, by model.scheme"),
        (4, OptionError, "must be a text: grouped:4, separable, bottleneck:0.25"),
    ):
        with pytest.raises(error, match=message):
            build_network("monai:ResNet18-3d", {**RESNET, "convolutions": scheme})
    with pytest.raises(OptionError, match="cifar_fast has no option 'convolutions'.* schemes"):
        build_network("cifar_fast", {"convolutions": "separable"})


@pytest.mark.slow
@pytest.mark.parametrize("scheme", WEIGHTS)
def test_networks_are_deployed_and_their_norms_folded(scheme: str, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    torch.manual_seed(0)
    model = create_model("cifar_fast", widths=(16, 32, 32), schemes=all_layers(scheme)).eval()
    options = cruciform.DeployOptions(rounds=2, search_seconds=0)
    artifact = cruciform.deploy(model, tmp_path / "deployed", input_size=(3, 32, 32), options=options)
    x = torch.randn(3, 3, 32, 32)
    torch.testing.assert_close(torch.from_numpy(artifact(x.numpy())), model(x).detach(), atol=1e-4, rtol=1e-3)
    (graph,) = (onnx.load(path) for path in (tmp_path / "deployed").rglob("*.onnx"))
    assert "BatchNormalization" not in {node.op_type for node in graph.graph.node}
