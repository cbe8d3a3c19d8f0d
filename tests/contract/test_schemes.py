"""What holds for every registered scheme: a newcomer is covered as soon as it is registered."""

import pytest
import torch

from cruciform.errors import PlanError
from cruciform.nn.composite import CompositeConv
from cruciform.plan import LayerPlan
from cruciform.schemes import SCHEMES
from cruciform.spec import ConvSpec

SPECS = [
    ConvSpec(8, 16, (3,), padding=1),
    ConvSpec(8, 16, 3, padding=1),
    ConvSpec(8, 16, (5, 3), stride=(2, 1), padding=(2, 1)),
    ConvSpec(8, 15, (3, 3, 3), padding="same"),
    ConvSpec(8, 16, 1),
]


@pytest.mark.parametrize("name", SCHEMES.names())
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_scheme_keeps_the_convolutions_outside(name: str, spec: ConvSpec) -> None:
    plan = SCHEMES.get(name)(spec)
    assert plan.spec == spec
    assert LayerPlan.from_json(plan.to_json()) == plan
    x = torch.randn(1, 8, *[9] * spec.rank)
    assert tuple(CompositeConv(plan)(x).shape) == (1, spec.out_channels, *spec.output_size(x.shape[2:]))
    assert all(stage.bias == spec.bias for stage in plan.stages)


@pytest.mark.parametrize("name", [name for name in SCHEMES.names() if name != "full"])
def test_a_scheme_costs_less_than_the_dense_layer_on_a_usual_convolution(name: str) -> None:
    spec = ConvSpec(256, 256, 3, padding=1)
    assert SCHEMES.get(name)(spec).macs((28, 28)) < spec.macs((28, 28))


@pytest.mark.parametrize("name", SCHEMES.names())
def test_a_grouped_convolution_is_kept_or_refused(name: str) -> None:
    spec = ConvSpec(8, 8, 3, groups=8)
    try:
        assert SCHEMES.get(name)(spec).params == spec.params
    except PlanError as error:
        assert "scheme 'full'" in str(error)  # noqa: PT017
