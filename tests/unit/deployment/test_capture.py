"""What the captured graph says more plainly than the network did, it says exactly."""

import pytest
import torch
from torch import Tensor, nn

from cruciform import convert
from cruciform.deployment.rewrites.capture import capture
from cruciform.deployment.rewrites.graph import CAT, INSTANCE_NORM
from cruciform.deployment.rewrites.linear import linear_as_convolution_
from cruciform.deployment.search.layer_forms import build_form

aten = torch.ops.aten


class ComputedSlope(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.prelu(x, x.amax().abs().reshape(1))


def sloped(*slopes: float) -> nn.Module:
    activation = nn.PReLU(len(slopes))
    with torch.no_grad():
        activation.weight.copy_(torch.tensor(slopes))
    return activation


@pytest.mark.parametrize(
    ("activation", "written_as"),
    [
        (sloped(0.25), aten.leaky_relu.default),
        (sloped(-1.5), aten.leaky_relu.default),  # training may have brought it anywhere
        (sloped(0.1, 0.1, 0.1, 0.1), aten.leaky_relu.default),
        (sloped(0.1, 0.1, 0.1, 0.2), aten.prelu.default),
        (ComputedSlope(), aten.prelu.default),
    ],
)
def test_a_prelu_with_one_slope_becomes_a_leaky_relu_that_computes_the_same(
    activation: nn.Module, written_as: object
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv3d(1, 4, 3), activation).eval()
    graph = capture(model, (1, 6, 6, 6))
    found = {node.target for node in graph.graph.nodes}
    assert found & {aten.leaky_relu.default, aten.prelu.default} == {written_as}
    volumes = torch.randn(2, 1, 6, 6, 6)
    with torch.no_grad():
        torch.testing.assert_close(graph(volumes), model(volumes))


@pytest.mark.parametrize(("affine", "concatenated"), [(False, False), (True, True)])
def test_a_tail_goes_behind_instance_norms_without_weights_of_their_own(affine: bool, concatenated: bool) -> None:
    torch.manual_seed(0)
    norm = nn.InstanceNorm3d(8, affine=affine)
    model = convert(nn.Sequential(nn.Conv3d(4, 8, 3), norm, nn.ReLU(), nn.Flatten()), "cross3").model.eval()
    if affine:
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    graph = build_form(model, {"0": "tail"}, (4, 6, 6, 6))
    norms = [node for node in graph.graph.nodes if node.target is INSTANCE_NORM]
    assert {node.args[0].target is CAT for node in norms} == {concatenated}
    volumes = torch.randn(2, 4, 6, 6, 6)
    with torch.no_grad():
        torch.testing.assert_close(graph(volumes), model(volumes), rtol=1e-4, atol=1e-5)


def test_a_kernel_that_is_computed_is_left_before_its_norm() -> None:
    conv = nn.utils.parametrizations.spectral_norm(nn.Conv2d(3, 8, 3))
    network = nn.Sequential(conv, nn.BatchNorm2d(8), nn.ReLU()).eval()
    x = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(capture(network, (3, 8, 8))(x), network(x))


def test_a_matrix_that_is_computed_stays_one() -> None:
    norm = nn.utils.parametrizations.spectral_norm
    network = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), norm(nn.Linear(3, 4))).eval()
    assert not linear_as_convolution_(capture(network, (3, 8, 8)))
