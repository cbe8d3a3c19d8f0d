"""The paper's eight VGG networks on real size: which initialization trains them?"""

import pytest
import torch

from cruciform.measure.gradients import Diagnosis, diagnose
from cruciform.models.zoo import create_model

pytestmark = pytest.mark.slow
DENSE = ("vgg11", "vgg11_gmp")
LOW_RANK = tuple(f"vgg11_gmp_{name}" for name in ("sf", "lr", "lr_2x", "lr_join", "lr_join_wfull", "lr_lde"))


def examine(name: str, init: str) -> Diagnosis:
    model = create_model(name, init=init, generator=torch.Generator().manual_seed(0))
    return diagnose(model, model.config.input_shape, batch=2)


@pytest.mark.parametrize("name", DENSE + LOW_RANK)
def test_the_completed_rule_trains_every_network(name: str) -> None:
    found = examine(name, "paper-completed")
    assert found.verdict == "trainable"
    assert [block.name for block in found.blocks] == [f"features.conv{n}" for n in range(1, 9)]
    assert all(0.75 < block.gradient_ratio < 1.25 for block in found.blocks[1:])


@pytest.mark.parametrize("name", DENSE + LOW_RANK)
def test_pytorchs_rule_lets_the_gradient_vanish(name: str) -> None:
    assert examine(name, "pytorch").verdict == "untrainable: the gradient vanishes"


@pytest.mark.parametrize("name", LOW_RANK)
def test_each_group_alone_lets_the_gradient_explode(name: str) -> None:
    assert examine(name, "per-group").verdict == "untrainable: the gradient explodes"


@pytest.mark.parametrize("name", ["vgg11_gmp_lr_join", "vgg11_gmp_sf"])
def test_the_papers_factor_two_in_front_of_a_join_lets_the_gradient_explode(name: str) -> None:
    assert examine(name, "paper-literal").verdict == "untrainable: the gradient explodes"


def test_for_dense_networks_each_group_alone_is_the_papers_rule() -> None:
    first, second = (create_model("vgg11_gmp", init=rule, generator=torch.Generator().manual_seed(0)).features
                     for rule in ("per-group", "paper-completed"))  # fmt: skip
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
