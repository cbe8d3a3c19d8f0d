"""What holds for every initialization and every activation."""

import pytest
import torch

from cruciform.nn.activations import ACTIVATIONS, gain_squared
from cruciform.nn.composite import CompositeConv
from cruciform.nn.init_rules import RULES
from cruciform.nn.initialize import initialize_
from cruciform.schemes import SCHEMES
from cruciform.spec import ConvSpec


@pytest.mark.parametrize("rule", RULES.names())
@pytest.mark.parametrize("scheme", SCHEMES.names())
def test_every_parameter_is_drawn_anew_and_finite(rule: str, scheme: str) -> None:
    layer = CompositeConv(SCHEMES.get(scheme)(ConvSpec(4, 8, 3)))
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(torch.nan)
    initialize_(layer, rule)
    assert all(parameter.isfinite().all() for parameter in layer.parameters())


@pytest.mark.parametrize("name", ACTIVATIONS.names())
def test_the_slope_is_the_derivative_of_the_function(name: str) -> None:
    activation = ACTIVATIONS.get(name)
    z = torch.linspace(-4, 4, 81, dtype=torch.float64)[torch.arange(81) != 40].requires_grad_()
    z = z[(z.detach() - 3).abs().gt(1e-6) & (z.detach() + 3).abs().gt(1e-6)].detach().requires_grad_()
    activation.apply(z).sum().backward()
    slopes = torch.tensor([activation.slope(value) for value in z.detach().tolist()], dtype=torch.float64)
    torch.testing.assert_close(slopes, z.grad, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", ACTIVATIONS.names())
def test_the_gain_makes_up_for_the_activation(name: str) -> None:
    z = torch.randn(400_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    ACTIVATIONS.get(name).apply(z).sum().backward()
    assert float(z.grad.square().mean()) * gain_squared(name) == pytest.approx(1, rel=0.01)
