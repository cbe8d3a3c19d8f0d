import math
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from cruciform.errors import OptionError, PlanError, UnknownNameError
from cruciform.nn.composite import CompositeConv
from cruciform.nn.initialize import initialize_, suited_rule
from cruciform.nn.inspect import plan_of, spec_of
from cruciform.nn.standardize import standardize_
from cruciform.schemes import make_plan
from cruciform.spec import ConvSpec


def network() -> nn.Sequential:
    return nn.Sequential(
        CompositeConv(make_plan(ConvSpec(16, 64, 3, padding=1), "lr-join")),
        nn.Conv2d(64, 64, 3),
        nn.BatchNorm2d(64),
        nn.Linear(64, 400),
    )


def test_drawn_weights_have_the_width_that_the_rule_says(generator: torch.Generator) -> None:
    model = initialize_(network(), "paper-completed", exceptions={"3": None}, generator=generator)
    assert model[0].weight_0_0.std().item() == pytest.approx(math.sqrt(1 / 192), rel=0.05)
    assert model[0].weight_1_0.std().item() == pytest.approx(math.sqrt(2 / 64), rel=0.05)
    assert model[1].weight.std().item() == pytest.approx(math.sqrt(2 / (9 * 64)), rel=0.05)
    assert model[3].weight.std().item() == pytest.approx(math.sqrt(1 / 400), rel=0.05)
    assert not any(p.any() for name, p in model.named_parameters() if name.endswith("bias") and name[0] != "2")


def test_the_pytorch_rule_is_pytorchs_own() -> None:
    conv = nn.Conv2d(16, 64, 3)
    initialize_(conv, "pytorch")
    bound = 1 / math.sqrt(9 * 16)
    assert conv.weight.abs().max().item() == pytest.approx(bound, rel=0.01)
    assert bound * 0.9 < conv.bias.abs().max().item() <= bound


@pytest.mark.parametrize(
    ("behind", "rule"),
    [
        (nn.ReLU(), "paper-completed"),
        (nn.LocalResponseNorm(5), "paper-completed"),  # sets no scale: it damps what is loud among its neighbors
        (nn.BatchNorm2d(64), "pytorch"),
        (nn.Sequential(nn.ReLU(), nn.GroupNorm(4, 64)), "pytorch"),
        (nn.InstanceNorm2d(64), "pytorch"),
    ],
)
def test_norms_decide_which_rule_suits(behind: nn.Module, rule: str) -> None:
    models = [nn.Sequential(nn.Conv2d(16, 64, 3), behind) for _ in range(2)]
    for model, asked in zip(models, ("auto", rule), strict=True):
        initialize_(model, asked, generator=torch.Generator().manual_seed(0))
    assert suited_rule(models[0]) == rule
    assert torch.equal(models[0][0].weight, models[1][0].weight)


def test_normalizations_are_left_alone() -> None:
    model = network()
    nn.init.constant_(model[2].weight, 7)
    initialize_(model)
    assert (model[2].weight == 7).all()


def test_the_activation_changes_only_what_it_follows(generator: torch.Generator) -> None:
    layer = CompositeConv(make_plan(ConvSpec(16, 64, 3), "lr-join"))
    initialize_(layer, activation="gelu", generator=generator)
    assert layer.weight_0_0.std().item() == pytest.approx(math.sqrt(1 / 192), rel=0.05)
    assert layer.weight_1_0.std().item() == pytest.approx(math.sqrt(2.1937 / 64), rel=0.05)


def test_a_standardized_layer_is_drawn_behind_its_standardization() -> None:
    layer = standardize_(CompositeConv(make_plan(ConvSpec(16, 64, 3), "lr")), 1e-6, None)
    initialize_(layer, generator=torch.Generator().manual_seed(1))
    first = layer.parametrizations.weight_0_0.original.clone()
    initialize_(layer, generator=torch.Generator().manual_seed(2))
    assert not torch.equal(layer.parametrizations.weight_0_0.original, first)
    assert first.std().item() == pytest.approx(math.sqrt(2 / 192), rel=0.05)


def test_a_weight_made_from_several_tensors_is_refused_and_not_drawn_in_vain() -> None:
    with pytest.raises(PlanError, match="initialize before you parametrize"):
        initialize_(nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 4, 3)))


@pytest.mark.parametrize(
    "wrap", [nn.utils.weight_norm, nn.utils.spectral_norm, lambda conv: prune.l1_unstructured(conv, "weight", 0.5)]
)
@pytest.mark.filterwarnings("ignore:.*weight_norm")
def test_a_weight_that_is_computed_anew_is_refused_and_not_drawn_in_vain(
    wrap: Callable[[nn.Module], nn.Module],
) -> None:
    with pytest.raises(PlanError, match="recomputed at every step"):
        initialize_(wrap(nn.Conv2d(3, 4, 3)))


def test_layers_that_are_not_there_are_refused() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3))
    with pytest.raises(OptionError, match="no convolution or linear layer is named 'nope'"):
        initialize_(model, exceptions={"nope": None})
    with pytest.raises(OptionError, match="no convolution or linear layer is named '1'"):
        initialize_(model, siblings=[["0", "1"]])


def test_filters_behind_the_identity_are_drawn_as_the_other_rule_draws_them(generator: torch.Generator) -> None:
    layer = CompositeConv(make_plan(ConvSpec(16, 256, 3), "lr"))
    initialize_(layer, "identity", generator=generator)
    assert layer.weight_0_0[16:].abs().max().item() == pytest.approx(1 / math.sqrt(3 * 16), rel=0.01)
    initialize_(layer, "paper-identity", generator=generator)
    assert layer.weight_0_1.std().item() == pytest.approx(math.sqrt(2 / (3 * 256)), rel=0.05)


def test_a_layer_that_only_mixes_channels_gets_no_identity() -> None:
    for layer in (nn.Linear(4, 4, bias=False), nn.Conv2d(4, 4, 1)):
        initialize_(layer, "identity")
        assert not torch.equal(layer.weight.flatten(1), torch.eye(4))


def test_a_depthwise_layer_gets_no_identity_and_a_grouped_one_does() -> None:
    depthwise, grouped = nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 8, 3, groups=4)
    for layer in (depthwise, grouped):
        initialize_(layer, "identity")
    assert torch.count_nonzero(depthwise.weight) == depthwise.weight.numel()
    assert torch.count_nonzero(grouped.weight) == 8


def test_unknown_rules_and_activations_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="unknown initialization 'paper'. Did you mean"):
        initialize_(nn.ReLU(), "paper")
    with pytest.raises(UnknownNameError, match="unknown activation 'rleu'. Did you mean 'relu'"):
        initialize_(network(), activation="rleu")


@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv1d(4, 6, 3, padding="same", dilation=2),
        nn.Conv2d(4, 6, (3, 5), stride=(2, 1), padding=(1, 2), groups=2, bias=False, padding_mode="reflect"),
        nn.Conv3d(1, 2, 3, padding=1),
    ],
    ids=lambda conv: type(conv).__name__,
)
def test_a_plain_convolution_is_read_whole(conv: nn.Conv2d) -> None:
    spec, x = spec_of(conv), torch.randn(1, conv.in_channels, *[9] * (conv.weight.ndim - 2))
    assert tuple(conv(x).shape[2:]) == spec.output_size(x.shape[2:])
    assert spec.params == sum(p.numel() for p in conv.parameters())
    assert (spec.groups, spec.padding_mode) == (conv.groups, conv.padding_mode)
    assert plan_of(conv).is_dense


def test_what_runs_no_plan_has_none() -> None:
    assert plan_of(nn.ReLU()) is None
    assert plan_of(nn.ConvTranspose2d(1, 1, 3)) is None
