import pytest
import torch
from torch import nn

from cruciform import create_model
from cruciform.errors import RecipeError
from cruciform.training.optimizers.adamw import AdamW
from cruciform.training.optimizers.sgd import Sgd


def network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))


def settings(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, tuple[float, float]]:
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {
        names[id(parameter)]: (group["weight_decay"], group["lr"])
        for group in optimizer.param_groups
        for parameter in group["params"]
    }


def test_biases_and_norms_do_not_decay_and_biases_may_run_faster() -> None:
    model = network()
    found = settings(Sgd(lr=0.1, weight_decay=1e-4, bias_lr_mult=2.0).build(model), model)
    assert found == {
        "0.weight": (1e-4, 0.1),
        "0.bias": (0.0, 0.2),
        "1.weight": (0.0, 0.1),
        "1.bias": (0.0, 0.2),
        "3.weight": (1e-4, 0.1),
        "3.bias": (0.0, 0.2),
    }


def test_all_decays_where_the_recipe_says_so() -> None:
    model = network()
    found = settings(AdamW(lr=0.1, weight_decay=0.05, decay_norm_and_bias=True).build(model), model)
    assert {decay for decay, _ in found.values()} == {0.05}


def test_biases_of_composite_layers_are_biases() -> None:
    model = create_model("nin_c3_lr")
    found = settings(Sgd(lr=0.1, weight_decay=1e-4, bias_lr_mult=2.0).build(model), model)
    assert found["features.conv1.bias_0_1"] == (0.0, 0.2)
    assert found["features.conv1.weight_0_1"] == (1e-4, 0.1)


def test_names_can_have_rates_of_their_own_and_frozen_ones_none() -> None:
    model = network()
    model[0].weight.requires_grad_(False)
    found = settings(Sgd(lr=0.1, lr_mult={"3.*": 0.5}).build(model), model)
    assert "0.weight" not in found
    assert found["3.weight"][1] == pytest.approx(0.05)
    assert found["3.bias"][1] == pytest.approx(0.05)


def test_a_rate_for_nothing_is_refused() -> None:
    with pytest.raises(
        RecipeError, match="optimizer.lr_mult: '3.wieght' matches no parameter of the network. Did you mean '3.weight'"
    ):
        Sgd(lr=0.1, lr_mult={"3.wieght": 2.0}).build(network())
