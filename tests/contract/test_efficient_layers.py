"""What holds for every efficient layer."""

import pytest
import torch
from torch import nn

import cruciform
from cruciform.errors import PlanError
from cruciform.measure.macs import profile
from cruciform.models.efficient_layers import EFFICIENT_LAYERS, find_layer
from cruciform.nn.init_rules import RULES
from cruciform.nn.initialize import initialize_
from cruciform.schemes import WITHOUT_PLAN
from cruciform.spec import ConvSpec

EXAMPLES = [layer.example for _, layer in EFFICIENT_LAYERS.items()]
SPECS = [
    ConvSpec(8, 12, (5,), stride=2, padding=2),
    ConvSpec(8, 16, 3, padding=1, bias=False),
    ConvSpec(8, 8, (3, 5), stride=2, padding=(1, 2), dilation=2),
    ConvSpec(16, 8, (3, 3, 3), stride=2, padding=1, bias=False),
]


@pytest.mark.parametrize("scheme", EXAMPLES)
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_layer_has_the_geometry_of_the_convolution(scheme: str, spec: ConvSpec) -> None:
    x = torch.randn(2, spec.in_channels, *[9] * spec.rank)
    layer = find_layer(scheme)(spec)
    assert tuple(layer(x).shape) == (2, spec.out_channels, *spec.output_size(x.shape[2:]))
    layer(x).square().sum().backward()
    assert all(parameter.grad is not None for parameter in layer.parameters())


@pytest.mark.parametrize("scheme", EXAMPLES)
@pytest.mark.parametrize("bias", [True, False])
def test_norms_are_inside_where_a_norm_follows_the_layer(scheme: str, bias: bool) -> None:
    layer = find_layer(scheme)(ConvSpec(16, 16, 3, padding=1, bias=bias))
    convs = [part for part in layer.modules() if isinstance(part, nn.Conv2d)]
    norms = [part for part in layer.modules() if isinstance(part, nn.BatchNorm2d)]
    assert all((conv.bias is not None) is bias for conv in convs)
    assert len(norms) == (0 if bias else len(convs) - 1)


@pytest.mark.parametrize("scheme", EXAMPLES)
def test_a_layer_costs_less_than_the_dense_one(scheme: str) -> None:
    spec = ConvSpec(64, 64, 3, padding=1)
    assert profile(find_layer(scheme)(spec), (64, 14, 14)).macs < spec.macs((14, 14))


@pytest.mark.parametrize("scheme", EXAMPLES)
def test_every_output_depends_on_channels_of_every_group_after_two_layers(scheme: str) -> None:
    make, spec = find_layer(scheme), ConvSpec(16, 16, 3, padding=1, bias=False)
    layers = nn.Sequential(make(spec), make(spec)).eval()
    x = torch.randn(1, 16, 5, 5, requires_grad=True)
    for channel in range(16):
        (gradient,) = torch.autograd.grad(layers(x)[0, channel].sum(), x)
        groups = gradient.abs().sum((0, 2, 3)).reshape(4, 4).sum(1)
        assert (groups > 0).all()


@pytest.mark.parametrize("rule", RULES.names())
@pytest.mark.parametrize("scheme", EXAMPLES)
def test_every_rule_draws_every_weight(scheme: str, rule: str) -> None:
    layer = find_layer(scheme)(ConvSpec(8, 16, 3))
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(torch.nan)
    initialize_(layer, rule)
    assert all(parameter.isfinite().all() for parameter in layer.parameters())


@pytest.mark.parametrize("scheme", EXAMPLES)
@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (ConvSpec(3, 64, 3), "reads only 3, as those of an image"),
        (ConvSpec(8, 8, 1), "has a 1×1 window"),
        (ConvSpec(8, 8, 3, groups=8), "has groups=8"),
        (ConvSpec(8, 8, 3, transposed=True), "is transposed"),
    ],
)
def test_where_a_layer_does_not_apply_it_is_refused_with_what_does(scheme: str, spec: ConvSpec, problem: str) -> None:
    with pytest.raises(PlanError, match=f"{problem}; keep it dense with '{scheme} or full'"):
        find_layer(scheme)(spec)
    if spec.groups == 1:
        assert type(find_layer(f"{scheme} or full")(spec)).__name__ in ("Conv2d", "ConvTranspose2d")


@pytest.mark.parametrize("name", EFFICIENT_LAYERS.names())
def test_what_has_no_plan_is_refused_by_conversions_with_what_to_do(name: str) -> None:
    assert set(EFFICIENT_LAYERS.names()) == set(WITHOUT_PLAN)
    with pytest.raises(PlanError, match=r"has no plan.* create_model\('cifar_fast', schemes"):
        cruciform.convert(nn.Conv2d(8, 8, 3), EFFICIENT_LAYERS.get(name).example)
