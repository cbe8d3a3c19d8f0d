"""Converted networks in torch.fx, torch.jit, torch.export and torch.compile: the same outputs, or a reason."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx, nn

from cruciform import convert, profile
from cruciform.conversion.dense import collapse
from cruciform.errors import DeployError, ShapeError
from cruciform.nn.composite import CompositeConv
from cruciform.schemes import make_plan
from cruciform.spec import ConvSpec

SIZE = (3, 11, 11)


def converted(rank: int = 2) -> nn.Module:
    """A converted network with strides, a padding mode and, in volumes, strides across lines."""
    torch.manual_seed(rank)
    conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[rank - 1]
    layers = [conv(3, 8, 3, padding=1, stride=2), nn.ReLU(), conv(8, 8, 3, padding=2, padding_mode="circular")]
    return convert(nn.Sequential(*layers), "lr" if rank == 2 else "cross3").model.eval()


def same(first: nn.Module, second: Callable[[Tensor], Tensor], x: Tensor) -> None:
    expected = first(x)
    assert expected.std() > 0.01
    torch.testing.assert_close(second(x), expected, rtol=0, atol=0)


@pytest.mark.parametrize("rank", [2, 3])
def test_fx_traces_a_converted_network_and_keeps_its_layers_whole(rank: int) -> None:
    model = converted(rank)
    traced = fx.symbolic_trace(model)
    x = torch.randn(2, 3, *[9] * rank)
    same(model, traced, x)
    assert [node.target for node in traced.graph.nodes if node.op == "call_module"] == ["0", "1", "2"]
    assert traced.get_submodule("2") is model[2]
    assert list(traced.state_dict()) == list(model.state_dict())
    assert profile(traced, (3, *[9] * rank)).macs == profile(model, (3, *[9] * rank)).macs
    with pytest.raises(ShapeError, match="takes inputs of"):
        traced(torch.zeros(2, 4, *[9] * rank))
    same(traced, fx.symbolic_trace(traced), x)


def test_a_traced_network_can_still_be_collapsed() -> None:
    model = convert(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()), "lr-join").model
    x = torch.randn(2, *SIZE)
    torch.testing.assert_close(collapse(fx.symbolic_trace(model))(x), model(x), rtol=1e-4, atol=1e-5)


def test_fx_keeps_what_is_done_to_each_part_before_they_are_concatenated() -> None:
    class Tailed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = CompositeConv(make_plan(ConvSpec(3, 8, 3), "lr"))

        def forward(self, x: Tensor) -> Tensor:
            return self.conv(x, torch.relu)

    model = Tailed()
    same(model, fx.symbolic_trace(model), torch.randn(2, *SIZE))


def test_fx_on_a_bare_layer_says_what_to_do() -> None:
    layer = CompositeConv(make_plan(ConvSpec(3, 8, 3), "lr"))
    with pytest.raises(DeployError, match=r"can't trace a CompositeConv on its own.*torch\.nn\.Sequential\(layer\)"):
        fx.symbolic_trace(layer)
    same(layer, fx.symbolic_trace(nn.Sequential(layer)), torch.randn(2, *SIZE))


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")
def test_script_is_refused_with_what_to_use_instead() -> None:
    model = converted()
    before = list(model.modules())
    for each in (model, model[0]):
        with pytest.raises(DeployError, match=r"torch\.export\.export\(model, \(x,\)\), or torch\.jit\.trace"):
            torch.jit.script(each)
    assert list(model.modules()) == before


@pytest.mark.filterwarnings("ignore:.torch.jit.trace:DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize(
    "pass_on",
    [
        copy.deepcopy,
        lambda model: torch.jit.trace(model, torch.randn(2, *SIZE)),
        lambda model: torch.export.export(model, (torch.randn(2, *SIZE),)).module(),
        lambda model: torch.compile(model, backend="eager"),
    ],
    ids=["deepcopy", "trace", "export", "compile"],
)
def test_what_the_docs_advise_instead_gives_the_same_outputs(pass_on: Callable[[nn.Module], nn.Module]) -> None:
    model = converted()
    same(model, pass_on(model), torch.randn(2, *SIZE))


@pytest.mark.usefixtures("libraries")
@pytest.mark.parametrize("training", [False, True])
def test_feature_extraction_of_torchvision_finds_converted_layers_by_their_names(training: bool) -> None:
    from torchvision.models import resnet18
    from torchvision.models.feature_extraction import create_feature_extractor

    torch.manual_seed(0)
    model = convert(resnet18(num_classes=4), "lr", input_size=(3, 32, 32)).model.train(training)
    seen: dict[str, Tensor] = {}
    for name in ("conv1", "layer2", "layer4.0.conv2"):
        model.get_submodule(name).register_forward_hook(lambda _, __, y, name=name: seen.update({name: y.clone()}))
    x = torch.randn(2, 3, 32, 32)
    features = create_feature_extractor(copy.deepcopy(model), ["conv1", "layer2", "layer4.0.conv2"])(x)
    seen.clear()
    model(x)
    assert seen.keys() == features.keys()
    for name, expected in seen.items():
        assert expected.std() > 0.01
        torch.testing.assert_close(features[name], expected, rtol=0, atol=0)


@pytest.mark.usefixtures("libraries")
def test_layers_that_pad_by_the_size_of_their_input_are_traced_as_they_are() -> None:
    from timm.layers import Conv2dSame

    model = convert(nn.Sequential(Conv2dSame(3, 8, 3, stride=2), nn.ReLU()), "lr").model
    traced = fx.symbolic_trace(model)
    for extent in (9, 10):
        same(model, traced, torch.randn(2, 3, extent, extent))
