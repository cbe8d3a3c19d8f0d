"""Comparing an engine with PyTorch: over inputs that differ, at several batch sizes, and never over classes alone."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from cruciform.deployment.parity.compare import Comparison, check_inputs, compare, pytorch, range_over_inputs
from cruciform.deployment.search.build import Build, EngineSettings, build_graph
from cruciform.deployment.targets.target import TARGETS, Engine
from cruciform.errors import DeployError

SIZE = (3, 8, 8)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)).eval()


def check(model: nn.Module, engine: Engine, batch: int = 4) -> Comparison:
    images = check_inputs(max(8, batch + 1), SIZE)
    return compare(model, engine, images, batch=batch, target=TARGETS.get("torch"), name="engine")


class ByBatch(nn.Module):
    """Takes another path where there is one image."""

    def __init__(self) -> None:
        super().__init__()
        self.network = network()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.network(x)
        return y if x.shape[0] > 1 else 2 * y


class InPlace(nn.Module):
    """Normalizes its input where that lies."""

    def __init__(self) -> None:
        super().__init__()
        self.network = network()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.network(x.mul_(2).sub_(1))
        return y


class Random(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.rand_like(x)


class Of(nn.Module):
    """Takes one batch size alone."""

    def __init__(self, batch: int) -> None:
        super().__init__()
        self.batch, self.network = batch, network()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.network(x.view(self.batch, 3, 8, 8))
        return y


def test_an_error_is_a_fraction_of_the_range_over_inputs_and_not_over_classes() -> None:
    model = network()
    nn.init.uniform_(model[3].bias, -1000, 1000)  # the classes lie far apart, whatever the input
    outputs = pytorch(model)(check_inputs(8, SIZE))
    spread = range_over_inputs(outputs)
    assert spread < 1e-2 * np.ptp(outputs)
    exact = model.double()
    right = lambda images: exact(torch.from_numpy(images).double()).detach().numpy()  # noqa: E731

    class Exactly(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return exact(x.double())  # type: ignore[no-any-return]

    assert check(Exactly(), right).error < 1e-9
    off = 0.01 * spread  # within 1e-4 of the range over all outputs
    assert off < 1e-4 * np.ptp(outputs)
    found = compare(Exactly(), lambda images: right(images) + off, check_inputs(8, SIZE), batch=4,
                    target=TARGETS.get("torch"), name="engine")  # fmt: skip
    assert not found.resolved, (
        "in float32 such a range over inputs is too narrow for 1e-4, so it is not called verified"
    )
    nn.init.uniform_(exact[3].bias, -1, 1)
    with pytest.raises(DeployError, match=r"engine differs from PyTorch by 1.0e-02 of the outputs' range over inputs"):
        check(Exactly(), lambda images: right(images) + off)


def test_a_network_that_depends_on_the_batch_size_is_refused_by_name() -> None:
    model = ByBatch().eval()
    message = r"outputs of this network \(ByBatch\) depend on the batch size: .* those at 1 and at 4 differ"
    with pytest.raises(DeployError, match=message):
        check(model, pytorch(model))
    with pytest.raises(DeployError, match="those at 2 and at 1 differ"):
        check(model, pytorch(model), batch=1)


@pytest.mark.parametrize(("batch", "wrong"), [(4, 1), (4, 4), (4, 5), (1, 1), (1, 2), (1, 3)])
def test_an_engine_that_is_wrong_at_one_batch_size_is_refused(batch: int, wrong: int) -> None:
    model = network()
    right = pytorch(model)
    engine = lambda images: right(images) + 0.1 * (len(images) == wrong)  # noqa: E731
    with pytest.raises(DeployError, match=f"at batch size {wrong}; 1e-04 is allowed"):
        check(model, engine, batch)
    assert check(model, right, batch).batches == ((1, 4, 5) if batch == 4 else (1, 2, 3))


def test_an_engine_that_returns_nan_is_refused() -> None:
    model = network()
    with pytest.raises(DeployError, match="engine differs from PyTorch by nan"):
        check(model, lambda images: np.full((len(images), 5), np.nan, np.float32))


def test_a_network_that_changes_its_input_in_place_is_compared_on_copies() -> None:
    model = InPlace().eval()
    images = check_inputs(8, SIZE)
    before = images.copy()
    graph = build_graph(model, {}, EngineSettings(TARGETS.get("torch"), SIZE, 4))
    found = compare(model, pytorch(graph), images, batch=4, target=TARGETS.get("torch"), name="engine")
    assert found.error < 1e-5
    assert np.array_equal(images, before)


def test_what_is_deployed_leaves_its_input_alone() -> None:
    graph = build_graph(InPlace().eval(), {}, EngineSettings(TARGETS.get("torch"), SIZE))
    images = torch.from_numpy(check_inputs(2, SIZE))
    before = images.clone()
    graph(images)
    assert torch.equal(images, before)


def test_a_network_with_random_numbers_is_told_so() -> None:
    with pytest.raises(DeployError, match=r"\(Random\) returns different outputs for the same images each time"):
        check(Random(), pytorch(Random()))


def test_batch_sizes_that_a_network_does_not_take_are_named() -> None:
    model = Of(4).eval()
    found = check(model, pytorch(model))
    assert found.batches == (4,)
    assert set(found.refused) == {1, 5}
    assert "shape '[4, 3, 8, 8]' is invalid" in found.refused[1]
    with pytest.raises(RuntimeError):
        check(Of(3).eval(), pytorch(model))


def test_outputs_of_nan_or_of_another_shape_are_refused() -> None:
    model = network()
    with pytest.raises(DeployError, match=r"the engine's output has shape \(4,\), PyTorch's \(5,\)"):
        check(model, lambda images: np.zeros((len(images), 4), np.float32))
    nn.init.constant_(model[3].weight, torch.nan)
    with pytest.raises(DeployError, match=r"\(Sequential\) returns NaN or Inf"):
        check(model, pytorch(model))


@pytest.mark.parametrize("size", [(7,), (2, 9), (3, 64, 64), (1, 8, 8, 8)])
def test_inputs_of_a_check_differ_after_a_pooling_too(size: tuple[int, ...]) -> None:
    images = check_inputs(8, size)
    assert images.shape == (8, *size)
    assert images.dtype == np.float32
    pooled: Any = images.reshape(8, size[0], -1).mean(axis=2)
    assert range_over_inputs(pooled) > 0.5
    assert np.array_equal(images, check_inputs(8, size))


def test_a_build_is_of_the_same_shape_at_any_batch_size() -> None:
    graph = build_graph(network(), Build({}).forms, EngineSettings(TARGETS.get("torch"), SIZE))
    assert check(network(), pytorch(graph)).batches == (1, 4, 5)


def test_engines_are_compared_a_batch_at_a_time() -> None:
    sizes: list[int] = []

    class Watched(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            sizes.append(len(x))
            return x.flatten(1)

    images = np.random.default_rng(0).random((150, 1, 2, 2), dtype=np.float32)
    run = lambda given: given.reshape(len(given), -1)  # noqa: E731
    found = compare(Watched(), run, images, batch=64, target=TARGETS.get("torch"), name="reshape")
    assert found.error == 0
    assert set(sizes) == {1, 64, 65}
