"""Every form computes the same, and has the graph that it promises."""

from collections import Counter

import pytest
import torch
from torch import nn
from torch.fx import GraphModule

from cruciform import convert, create_model
from cruciform.deployment.rewrites.capture import capture
from cruciform.deployment.rewrites.graph import CAT
from cruciform.deployment.search.layer_forms import (
    FORMS,
    Form,
    build_form,
    composite_layers,
    forms_of_layers,
    why_not_dense,
)
from cruciform.errors import DeployError
from cruciform.nn.composite import CompositeConv
from cruciform.schemes import make_plan
from cruciform.spec import ConvSpec

aten = torch.ops.aten
SIZE = (3, 48, 48)


def normed(scheme: str) -> nn.Module:
    def block(c: int, d: int, stride: int = 1) -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(c, d, 3, stride, 1, bias=False), nn.BatchNorm2d(d), nn.ReLU(inplace=True))

    torch.manual_seed(0)
    model = nn.Sequential(
        block(3, 8),
        block(8, 12, 2),
        nn.MaxPool2d(2),
        block(12, 16),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 5),
    )
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)
    return convert(model, scheme).model


def network(name: str) -> nn.Module:
    torch.manual_seed(0)
    schemes = {"normed": "lr", "joined": "lr-join-wfull"}
    return normed(schemes[name]) if name in schemes else create_model(name, num_classes=5, input_size=SIZE[1]).eval()


def largest_error(model: nn.Module, graph: nn.Module, images: torch.Tensor) -> float:
    with torch.no_grad():
        expected = model.eval()(images)
        return float((expected - graph(images)).abs().max() / (expected.max() - expected.min()))


NAMES = ["normed", "joined", *(pytest.param(name, marks=pytest.mark.slow) for name in ("nin_c3_lr", "cifar_fast_lr3"))]


def operations(graph: GraphModule) -> Counter[object]:
    return Counter(node.target for node in graph.graph.nodes if node.op == "call_function")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NAMES)
def test_every_form_computes_the_same_and_leaves_the_network_alone(name: str, form: Form) -> None:
    model = network(name)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    graph = build_form(model, dict.fromkeys(composite_layers(model), form), SIZE)
    images = torch.randn(3, *SIZE, generator=torch.Generator().manual_seed(1))
    assert largest_error(model, graph, images) < 1e-5
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert composite_layers(model)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["normed", "vgg11_gmp_lr"])
def test_a_tail_leaves_no_activation_or_pooling_behind_a_concatenation(name: str) -> None:
    model = network(name)
    graph = build_form(model, dict.fromkeys(composite_layers(model), "tail"), SIZE)
    for node in graph.graph.nodes:
        if node.target in (aten.relu.default, aten.max_pool2d.default):
            assert node.args[0].target is not CAT


@pytest.mark.slow
def test_split_layers_read_without_a_concatenation() -> None:
    model = network("vgg11_gmp_lr")
    layers = composite_layers(model)
    counts = operations(build_form(model, dict.fromkeys(layers, "split"), SIZE))
    # Each of 7 composite layers behind the first reads two groups with each of its two kernels.
    assert counts[aten.conv2d.default] == 2 + 7 * 4
    assert counts[CAT] == 1, "the last one, in front of the fully connected layers"


@pytest.mark.slow
def test_forms_can_be_mixed() -> None:
    model = network("vgg11_gmp_lr")
    forms: dict[str, Form] = dict(zip(composite_layers(model), ["dense", "split", "tail", "concat"] * 2, strict=True))
    graph = build_form(model, forms, SIZE)
    assert largest_error(model, graph, torch.randn(2, *SIZE)) < 1e-5


@pytest.mark.slow
def test_batch_norm_is_folded_in_every_form() -> None:
    model = network("normed")
    for form in FORMS:
        graph = build_form(model, dict.fromkeys(composite_layers(model), form), SIZE)
        assert not [node for node in graph.graph.nodes if "norm" in str(node.target)]


def test_a_form_is_found_inside_what_a_convolution_became() -> None:
    layer = CompositeConv(make_plan(ConvSpec(3, 4, 3), "lr"))
    model = nn.Sequential(nn.Sequential(nn.Identity(), layer), CompositeConv(make_plan(ConvSpec(4, 4, 3), "lr")))
    assert forms_of_layers(model, {"0": "tail", "1": "split"}) == {"0.1": "tail", "1": "split"}
    with pytest.raises(DeployError, match="no low-rank layer is called '0'"):
        build_form(model, {"0": "tail"}, SIZE)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", [None, "lr"])
def test_a_convolution_that_is_called_twice_keeps_its_weights_when_norms_are_folded(scheme: str | None) -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.first, self.second = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.BatchNorm2d(3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(self.conv(self.first(self.conv(x)).relu()))

    torch.manual_seed(0)
    model = Twice()
    for norm in (model.first, model.second):
        nn.init.uniform_(norm.weight, 2, 3)
        norm.running_var.uniform_(0.1, 0.3)
    model = (convert(model, scheme).model if scheme else model).eval()
    graph = build_form(model, dict.fromkeys(composite_layers(model), "tail"), SIZE)
    assert not [node for node in graph.graph.nodes if "norm" in str(node.target)]
    x = torch.randn(2, *SIZE)
    torch.testing.assert_close(graph(x), model(x), atol=1e-4, rtol=1e-4)


@pytest.mark.slow
def test_a_concatenation_within_another_is_not_made() -> None:
    model = create_model("googlenet_lr", num_classes=5, input_size=96).eval()
    layers = composite_layers(model)
    plain, tail = (
        operations(build_form(model, dict.fromkeys(layers, form), (3, 96, 96))) for form in ("concat", "tail")
    )
    assert plain[CAT] == 9 + len(layers)
    assert tail[CAT] == 9, "those of the modules alone"


def test_a_layer_says_why_it_has_no_dense_form() -> None:
    model = network("vgg11_gmp_sf")
    (layer, *_) = composite_layers(model).values()
    with torch.no_grad():
        layer.get_parameter("bias_0_0").fill_(1.0)
    assert "cuts off at the border" in (why_not_dense(layer) or "")


def test_a_network_that_cannot_be_followed_is_said() -> None:
    class Odd(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 if bool(x.sum() > 0) else x

    with pytest.raises(DeployError, match="torch.export can't trace this network"):
        capture(Odd(), (3, 4, 4))


@pytest.mark.parametrize(("scale", "norms"), [(0.5, 0), (-0.5, 1)])
def test_a_batch_norm_behind_a_max_pooling_is_folded_where_its_scales_are_positive(scale: float, norms: int) -> None:
    torch.manual_seed(0)
    model = convert(
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.MaxPool2d(2), nn.BatchNorm2d(8), nn.GELU(), nn.Flatten()), "lr"
    ).model.eval()
    nn.init.constant_(model[2].weight, 1.0)
    with torch.no_grad():
        model[2].weight[3] = scale
        model[2].bias.normal_()
        model[2].running_mean.normal_()
        model[2].running_var.uniform_(0.5, 2)
    graph = capture(model, (3, 12, 12))
    assert operations(graph)[aten.batch_norm.default] == norms
    assert largest_error(model, graph, torch.randn(3, 3, 12, 12)) < 1e-5
