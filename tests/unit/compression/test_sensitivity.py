"""How much errors of a layer count: against the change that they really make."""

from math import log

import pytest
import torch
from torch import Tensor, nn

from cruciform.compression.fitting.measured_rise import measure_rise, take_probes
from cruciform.compression.fitting.moments import MomentSums
from cruciform.compression.fitting.output_fit import QuickFit, fit_plan, fit_quickly
from cruciform.compression.fitting.output_problem import OutputProblem
from cruciform.compression.fitting.prefix import Prefix
from cruciform.compression.fitting.sensitivity import measure_sensitivity
from cruciform.compression.predicted_rise import _interpolate, _measure_rises
from cruciform.schemes import make_plan
from cruciform.spec import ConvSpec


class Linear(nn.Module):
    """A convolution of one position, then a known matrix: the sensitivity is known too."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.matrix = nn.Conv2d(3, 4, 3), torch.randn(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return (self.conv(x).flatten(1) @ self.matrix.T).reshape(len(x), 2, 3)


def test_of_a_linear_network_it_is_the_square_of_its_matrix() -> None:
    torch.manual_seed(0)
    network = Linear().eval()
    found = measure_sensitivity(network, ["conv"], lambda: [torch.randn(20_000, 3, 3, 3)])["conv"]
    exact = network.matrix.T @ network.matrix / 6  # the mean square error of six outputs
    assert float((found - exact).norm() / exact.norm()) < 0.05


def test_of_class_scores_it_is_the_fisher_matrix() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(2, 3, 1), nn.Flatten())
    image = torch.randn(1, 2, 1, 1)
    found = measure_sensitivity(network, ["0"], lambda: [image.expand(30_000, -1, -1, -1)])["0"]
    p = network(image).softmax(1)[0].detach().double()
    exact = torch.diag(p) - torch.outer(p, p)
    assert float((found - exact).norm() / exact.norm()) < 0.05


def test_a_measured_rise_is_what_the_replacement_changes() -> None:
    torch.manual_seed(0)
    network = Linear().eval()
    images = torch.randn(50, 3, 3, 3)
    kernel, bias = torch.randn(4, 3, 3, 3), torch.randn(4)
    weights = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    expected = network(images).detach()
    prefix, probes = Prefix(network, images[:1]), take_probes(network, lambda: images.split(30), 40)
    found = measure_rise(prefix, "conv", kernel, bias, probes)
    changed = nn.functional.conv2d(images[:40], kernel, bias).flatten(1) @ network.matrix.T
    assert found == pytest.approx(float((changed.reshape(40, 2, 3) - expected[:40]).square().mean()), rel=1e-4)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in network.state_dict().items())
    assert not network.conv._forward_hooks


def test_parameters_and_hooks_are_left_as_they_were() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(16, 5))
    network[0].weight.requires_grad_(False)
    measure_sensitivity(network, ["0"], lambda: [torch.randn(4, 3, 4, 4)])
    assert [parameter.requires_grad for parameter in network.parameters()] == [False, True, True, True]
    assert all(parameter.grad is None for parameter in network.parameters())
    assert not network[0]._forward_hooks


@pytest.mark.parametrize("scheme", ["sf:rank=4", "thin:rank=3", "lr-join"])
def test_errors_that_count_more_become_smaller(scheme: str) -> None:
    torch.manual_seed(0)
    spec = ConvSpec(6, 8, (3, 3))
    weight = torch.randn(8, 6, 3, 3, dtype=torch.float64)
    patches = torch.randn(3000, 54, dtype=torch.float64) @ torch.randn(54, 54, dtype=torch.float64)
    sums = MomentSums(54, 8)
    sums.add(patches, patches @ weight.flatten(1).T)
    moments = sums.moments()
    metric = torch.diag(torch.tensor([100.0] * 2 + [1.0] * 6, dtype=torch.float64))
    plan = make_plan(spec, scheme)
    alike = OutputProblem(moments, weight, centered=True)
    counted = OutputProblem(moments, weight, centered=True, metric=metric)

    def errors(problem: OutputProblem) -> Tensor:
        fitted = fit_plan(plan, problem).parameters
        layer = nn.Sequential(*[_stage(stage) for stage in fitted])
        x = patches.reshape(-1, 6, 3, 3)
        y = patches @ weight.flatten(1).T
        made = layer(x).flatten(1)
        return ((made - y) - (made - y).mean(0)).square().mean(0).detach()

    plain, weighted = errors(alike), errors(counted)
    assert float(weighted[:2].sum()) < 0.8 * float(plain[:2].sum())
    assert fit_plan(plan, counted).error <= fit_quickly(plan, counted).error * (1 + 1e-9)


def _stage(groups: list[tuple[Tensor, Tensor | None]]) -> nn.Module:
    """Return a stage whose groups read the same window, each padded to it."""

    class Stage(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            sizes = [max(weight.shape[axis] for weight, _ in groups) for axis in (2, 3)]
            made = []
            for weight, bias in groups:
                cut = [(size - weight.shape[axis]) // 2 for axis, size in zip((2, 3), sizes, strict=True)]
                inner = x[:, :, cut[0] : x.shape[2] - cut[0], cut[1] : x.shape[3] - cut[1]]
                made.append(nn.functional.conv2d(inner, weight, bias))
            return torch.cat(made, 1)

    return Stage()


def test_rises_between_measured_ones_lie_on_the_line_through_their_logarithms() -> None:
    points = [(log(error), log(3 * error**1.6)) for error in (0.01, 0.1)]
    for error in (0.001, 0.03, 0.1, 0.5):  # below, between, at and beyond them
        assert _interpolate(points, error) == pytest.approx(3 * error**1.6)
    assert _interpolate(points[:1], 0.02) == pytest.approx(2 * _interpolate(points, 0.01))
    assert _interpolate([], 0.02) == 0.02


def test_large_errors_of_a_layer_raise_the_output_error_by_more_than_their_share() -> None:
    """Neighboring errors are not independent: two measured candidates tell by how much, a factor alone does not."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1)).eval()
    errors = [0.1, 0.2, 0.4, 0.8]
    weight, bias = model[2].weight.detach(), model[2].bias.detach()
    generator = torch.Generator().manual_seed(1)
    change = torch.randn(weight.shape, generator=generator)
    # The rise is quadratic in the change, so it is quadratic in what is called the error here.
    fits = [QuickFit(error, (weight + error * change).double(), bias.double()) for error in errors]
    images = torch.randn(4, 3, 8, 8, generator=generator)
    prefix, probes = Prefix(model, images[:1]), take_probes(model, lambda: [images], 4)
    rise_of = _measure_rises(prefix, "2", fits, probes)
    real = [measure_rise(prefix, "2", fit.kernel, fit.bias, probes) for fit in fits]
    assert [rise_of(error) for error in errors] == pytest.approx(real, rel=1e-3)
    assert real[-1] == pytest.approx(64 * real[0], rel=1e-3)
