"""Slow weights and frozen parameters."""

import pytest
import torch
from torch import Tensor, nn

from cruciform.data.loader import Batch
from cruciform.errors import RecipeError
from cruciform.training.engine.learner import Learner
from cruciform.training.engine.lookahead import Lookahead
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.runtime.runtime import SingleProcess
from cruciform.training.tables.lookahead_table import LookaheadTable
from cruciform.training.tables.table import read_table


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 10))


class Wrapping(SingleProcess):
    """As processes of a group do, whose wrapper waits for the gradient of every parameter."""

    def wrap(self, model: nn.Module) -> nn.Module:
        return nn.Sequential(model)


def learner(runtime: type[SingleProcess] = SingleProcess, **changes: object) -> Learner:
    data = {
        "model": {"name": "nin"},
        "data": {"kind": "cifar10", "path": "x"},
        "optimizer": {"kind": "sgd", "lr": 0.1, "momentum": 0.9},
        "epochs": 1,
        "batch_size": 8,
        **changes,
    }
    return Learner(read_table(Recipe, data, "test"), network(), runtime(torch.device("cpu")))


def batch() -> Batch:
    images = torch.randint(0, 256, (8, 3, 8, 8), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    return Batch(images, torch.arange(8), tuple(range(8)), 8, 8)


def weights(learning: Learner) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in learning.model.named_parameters()}


def test_frozen_parameters_stay_and_others_learn() -> None:
    learning = learner(freeze={"0.weight": 0.0, "1.*": 0.5})
    start = weights(learning)
    seen = []
    for step in range(4):
        learning.step(batch(), step, 1.0, steps=4)
        seen.append(weights(learning))
    assert torch.equal(seen[-1]["0.weight"], start["0.weight"])
    assert not torch.equal(seen[-1]["0.bias"], start["0.bias"])
    assert not torch.equal(seen[1]["1.bias"], seen[0]["1.bias"])
    assert torch.equal(seen[2]["1.bias"], seen[1]["1.bias"]), "half of the training has passed"
    assert torch.equal(seen[3]["1.bias"], seen[1]["1.bias"])
    assert not torch.equal(seen[3]["3.weight"], seen[1]["3.weight"])


def test_a_gradient_that_came_all_the_same_is_not_used() -> None:
    learning = learner(Wrapping, freeze={"1.*": 0.5})
    learning.step(batch(), 3, 1.0, steps=4)
    assert learning.model[1].bias.requires_grad
    assert learning.model[1].bias.grad is None


def test_a_pattern_that_freezes_nothing_is_refused() -> None:
    with pytest.raises(RecipeError, match="'0.wieght' matches no parameter of the network. Did you mean '0.weight'"):
        learner(freeze={"0.wieght": 0.0})


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_nothing_left_to_learn_is_refused(share: float) -> None:
    with pytest.raises(RecipeError, match="freezes all parameters before the end of training"):
        learner(freeze={"*": share})


def test_slow_weights_follow_and_take_the_fast_ones_with_them() -> None:
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    slow = Lookahead(model, LookaheadTable(k=2, decay=0.5, power=1))

    def after(value: float, taken: int, passed: float) -> float:
        nn.init.constant_(model.weight, value)
        slow.follow_(taken, passed)
        return model.weight.item()

    assert after(1.0, 1, 0.1) == 1.0, "it is not time yet"
    assert after(1.0, 2, 0.2) == pytest.approx(0.9)  # 0.9 of the fast, 0.1 of the slow weight, which was 0
    assert after(5.0, 3, 0.5) == 5.0
    assert after(1.9, 4, 0.8) == pytest.approx(0.6 * 1.9 + 0.4 * 0.9)
    assert after(7.0, 5, 1.0) == pytest.approx(0.6 * 1.9 + 0.4 * 0.9), "what is left at the end are the slow weights"


def test_a_layer_in_two_places_follows_once() -> None:
    layer = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(layer.weight)
    slow = Lookahead(nn.Sequential(layer, layer), LookaheadTable(k=1, decay=0.8, power=0))
    nn.init.ones_(layer.weight)
    slow.follow_(1, 0.5)
    assert layer.weight.item() == pytest.approx(0.2)


def test_slow_weights_include_running_statistics() -> None:
    assert {"1.running_mean", "1.running_var"} <= set(learner(lookahead={}).lookahead.slow)
