"""Multiplications by constants: folded into convolutions, or written as convolutions, with the same results."""

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
import torch
from torch import Tensor, nn

from cruciform import convert
from cruciform.deployment.parity.compare import check_inputs, compare
from cruciform.deployment.rewrites.capture import capture
from cruciform.deployment.rewrites.graph import aten
from cruciform.deployment.rewrites.scale import scales_as_convolutions_
from cruciform.deployment.search.build import Build, EngineSettings, build_engine
from cruciform.deployment.targets.target import TARGETS
from cruciform.errors import DeployError

SIZE = (3, 8, 8)
WAY = "scales as convolutions"


Apply = Callable[[Tensor, Tensor, Tensor], Tensor]


class Applied(nn.Module):
    """A convolution, and what a function makes of its output, its input and a constant of each channel."""

    def __init__(self, apply: Apply, *, bias: bool = True) -> None:
        super().__init__()
        self.conv, self.apply_ = nn.Conv2d(3, 3, 3, padding=1, bias=bias), apply
        self.gamma = nn.Parameter(torch.tensor([0.5, -2.0, 3.0]))

    def forward(self, x: Tensor) -> Tensor:
        return self.apply_(self.conv(x), x, self.gamma)


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(torch.relu(0.2 * self.conv(x)))


class Scaled(nn.Module):
    """Residual in a residual, as in Real-ESRGAN."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, padding=1)
        self.first, self.second = nn.Conv2d(32, 32, 3, padding=1), nn.Conv2d(32, 32, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        inner = 0.2 * self.first(torch.relu(x)) + x
        return 0.2 * (0.2 * self.second(torch.relu(inner)) + inner) + x


def targets_of(model: nn.Module) -> list[object]:
    graph = capture(model.eval(), SIZE)
    images = torch.randn(2, *SIZE)
    with torch.no_grad():
        torch.testing.assert_close(graph(images), model(images))
    return [node.target for node in graph.graph.nodes]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "apply",
    [
        lambda y, x, gamma: 0.2 * y + x,
        lambda y, x, gamma: y * gamma[:, None, None] + x,
        lambda y, x, gamma: gamma.reshape(1, 3, 1, 1) * y + x,
        lambda y, x, gamma: 0.5 * (gamma.view(3, 1, 1) * y) + x,
    ],
)
def test_a_scale_is_folded_into_the_convolution_before_it(apply: Apply, bias: bool) -> None:
    assert aten.mul.Tensor not in targets_of(Applied(apply, bias=bias))


@pytest.mark.parametrize(
    "apply",
    [
        lambda y, x, gamma: 0.2 * y + y,  # another reader
        lambda y, x, gamma: y * x,  # not a constant
        lambda y, x, gamma: y * gamma.exp()[:, None, None],  # computed
        lambda y, x, gamma: y.permute(0, 2, 3, 1) * gamma,  # the channels are elsewhere
        lambda y, x, gamma: y[..., :3] * gamma,  # of columns, not of channels
        lambda y, x, gamma: 2.0 * y.flatten(1),
        lambda y, x, gamma: y[:, :1] * gamma[:, None, None],  # makes more channels of one
    ],
)
def test_what_is_no_scale_of_feature_maps_with_one_reader_is_left(apply: Apply) -> None:
    assert aten.mul.Tensor in targets_of(Applied(apply))


def test_a_convolution_that_is_called_twice_keeps_its_weights_for_the_other_call() -> None:
    assert aten.mul.Tensor not in targets_of(Twice())


def test_scales_that_are_left_become_convolutions_of_each_channel() -> None:
    model = Applied(lambda y, x, gamma: torch.relu(0.2 * (y + x) * gamma[:, None, None])).eval()
    graph = capture(model, SIZE)
    assert scales_as_convolutions_(graph)
    assert [node.target for node in graph.graph.nodes].count(aten.conv2d.default) == 3
    images = torch.randn(2, *SIZE)
    with torch.no_grad():
        torch.testing.assert_close(graph(images), model(images))
    assert not scales_as_convolutions_(graph)


def test_of_volumes_too() -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv3d(4, 4, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            return 0.5 * (self.conv(x) + x)

    model, volumes = Residual().eval(), torch.randn(2, 4, 5, 5, 5)
    graph = capture(model, (4, 5, 5, 5))
    assert scales_as_convolutions_(graph)
    with torch.no_grad():
        torch.testing.assert_close(graph(volumes), model(volumes))


@pytest.mark.parametrize("converted", [False, True])
def test_onnx_runtime_runs_it_that_way_with_the_same_results(converted: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    dense = Scaled().eval()
    model = convert(dense, "sf:rank=8").model.eval() if converted else dense
    target = TARGETS.get("onnxruntime")
    setting = EngineSettings(target, SIZE)
    engine = build_engine(
        model, Build(dict.fromkeys(("first", "second"), "tail") if converted else {}, WAY), setting, tmp_path
    )
    assert {node.op_type for node in onnx.load(tmp_path / "model.onnx").graph.node} == {"Conv", "Add", "Relu"}
    found = compare(model, engine, check_inputs(8, SIZE), batch=3, target=target, name="onnxruntime")
    assert found.error < 1e-5


def test_a_network_without_scales_says_so(tmp_path: Path) -> None:
    setting = EngineSettings(TARGETS.get("onnxruntime"), SIZE)
    with pytest.raises(DeployError, match="are multiplied by constants outside"):
        build_engine(nn.Conv2d(3, 4, 3).eval(), Build({}, WAY), setting, tmp_path)
