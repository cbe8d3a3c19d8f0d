"""Idioms of ordinary networks that conversion, counting and saving once stumbled over."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune, weight_norm

from cruciform import convert, convert_, diagnose, load, profile, save
from cruciform.conversion.convert import plan_conversion
from cruciform.conversion.objections import objection
from cruciform.errors import ConversionError, CruciformError
from cruciform.measure.latency import time_layers
from cruciform.schemes import make_plan
from cruciform.spec import ConvSpec

SIZE = (3, 8, 8)


class Grid(nn.Module):
    """Keeps the positions of its last input: as an attribute, in a dictionary, and counts its runs."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.positions: dict[int, Tensor] = {}
        self.last: Tensor | None = None
        self.runs = [0]

    def forward(self, x: Tensor) -> Tensor:
        x, width = self.conv(x), x.shape[-1]
        if width not in self.positions:
            self.positions[width] = self.last = torch.arange(width, device=x.device, dtype=x.dtype)
            self.column = self.last[:, None]
        self.runs[0] += 1
        return x + self.positions[width] + self.column


@pytest.mark.parametrize(
    "look",
    [
        lambda network: profile(network, SIZE),
        lambda network: time_layers(network, SIZE, rounds=1),
        lambda network: convert_(network, input_size=SIZE),
    ],
)
def test_a_network_keeps_nothing_of_being_looked_at(look: Any) -> None:
    network = Grid()
    look(network)
    assert network.positions == {}
    assert network.last is None
    assert network.runs == [0]
    assert not hasattr(network, "column")
    network(torch.zeros(1, *SIZE)).sum().backward()


def dense() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3))


def test_what_was_loaded_or_converted_twice_can_be_saved_again(tmp_path: Path) -> None:
    x = torch.randn(1, *SIZE)
    once = convert(dense(), "lr", protect=["2"])
    twice = convert(once.model, "lr-join")
    save(twice.model, tmp_path / "a", twice.report)
    loaded = load(tmp_path / "a", dense())
    save(loaded, tmp_path / "b", plan_conversion(loaded))
    assert torch.equal(load(tmp_path / "b", dense())(x), twice.model(x))


@pytest.mark.filterwarnings("ignore::cruciform.errors.UnverifiedWarning")  # there is nothing to run
def test_tied_weights_of_16_bits_come_back_as_they_were(tmp_path: Path) -> None:
    def tied() -> nn.Module:
        network = nn.ModuleDict({"z": nn.Linear(4, 4), "conv": nn.Conv2d(3, 8, 3), "a": nn.Linear(4, 4)})
        network["a"].weight = network["z"].weight
        return network

    converted, report = convert(tied().to(torch.bfloat16))
    save(converted, tmp_path / "half", report)
    loaded = load(tmp_path / "half", tied())
    assert {parameter.dtype for parameter in loaded.parameters()} == {torch.bfloat16}


def test_layers_of_16_bits_are_timed() -> None:
    assert set(time_layers(dense().to(torch.bfloat16), SIZE, rounds=1)) == {"0", "2"}


@pytest.mark.parametrize(
    ("spec", "scheme", "why"),
    [
        (ConvSpec(3, 64, 16, stride=16), "lr", "reads only 12% of the input"),  # 31 of 256
        (ConvSpec(3, 64, 4, stride=4), "lr", "reads only 44% of the input"),  # 7 of 16
        (ConvSpec(3, 64, 3, stride=2), "lr", ""),  # 3 of 4
        (ConvSpec(3, 64, 1, stride=2), "full", ""),  # what the window did not read is not missed
        (ConvSpec(3, 64, 16, stride=16), "lr-join-wfull", ""),
        (ConvSpec(3, 64, 7, stride=2), "sf", ""),
    ],
)
def test_layers_that_skip_their_input_are_told(spec: ConvSpec, scheme: str, why: str) -> None:
    told = objection(make_plan(spec, scheme), 2, 1)
    assert why in told
    assert bool(why) == bool(told)


def test_layers_that_cost_more_are_told() -> None:
    stem = nn.Sequential(nn.Conv2d(3, 64, 7, stride=2, padding=3))
    (warning,) = convert(stem, "sf", input_size=(3, 32, 32)).report.warnings
    assert "it costs 3.3 times as much as the dense layer; protect it to keep it dense" in warning


def pruned() -> nn.Module:
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Linear(6, 6))
    prune.l1_unstructured(network[1], "weight", 0.5)
    return network


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_weights_that_are_computed_anew_are_told_by_name() -> None:
    old = nn.Sequential(nn.Conv2d(3, 8, 3), weight_norm(nn.Conv2d(8, 8, 1)))
    for network in (old, pruned()):
        with pytest.raises(ConversionError, match="1 recomputes its weight at every step.*convert_"):
            convert(network)
        assert convert_(network, input_size=SIZE).report.replaced == 1
    assert profile(nn.Sequential(weight_norm(nn.Conv2d(3, 8, 3))), SIZE).params == 3 * 8 * 9 + 8 + 8


def test_a_network_that_is_refused_is_left_as_it_was() -> None:
    class Looks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(3, 8, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.first(x.to(self.first.weight.dtype))

    network = Looks()
    first = network.first
    with pytest.raises(ConversionError, match=r"protect=\['first'\]"):
        convert_(network, input_size=SIZE)
    assert network.first is first


def run(x: Tensor, conv: nn.Module) -> Tensor:
    return conv(x)


@pytest.mark.parametrize("hold", [lambda conv: partial(run, conv=conv), lambda conv: lambda x: run(x, conv)])
def test_a_convolution_that_a_function_holds_is_found(hold: Any) -> None:
    network = nn.Sequential(nn.Conv2d(3, 8, 3))
    network.function = hold(network[0])
    with pytest.raises(ConversionError, match="is also referenced in function"):
        convert_(network)


def test_a_convolution_whose_forward_was_exchanged_is_refused() -> None:
    network = nn.Sequential(nn.Conv2d(3, 8, 3))
    network[0].forward = lambda x: x  # type: ignore[method-assign]
    with pytest.raises(ConversionError, match="its forward method was patched"):
        convert_(network)


def test_numbers_of_numpy_and_of_a_subclass_of_its_own() -> None:
    class Own(nn.Conv2d):
        def __init__(self) -> None:
            super().__init__(3, 8, 3)
            self.kernel_size = 3  # type: ignore[assignment]

    assert convert(nn.Sequential(nn.Conv2d(3, 8, np.int64(3), padding=np.int64(1)))).report.replaced == 1
    (row,) = convert(nn.Sequential(Own()), input_size=SIZE).report.layers
    assert row.reason.endswith("Own has kernel_size 3")


def test_complex_convolutions_are_left_alone() -> None:
    (row,) = convert(nn.Sequential(nn.Conv2d(3, 8, 3, dtype=torch.complex64))).report.layers
    assert row.reason == "complex weights are not supported"


def test_an_input_without_its_batch_is_counted() -> None:
    class First(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x[0])

    report = convert(First(nn.Conv2d(3, 8, 3)), input_size=SIZE).report
    assert report.macs_before == 6 * 6 * 9 * 3 * 8


@pytest.mark.parametrize(
    ("network", "size"), [("resnet18", SIZE), (dense(), 32), (nn.Sequential(nn.LazyConv2d(8, 3)), SIZE)]
)
def test_the_doctor_refuses_what_is_no_network_and_no_size(network: Any, size: Any) -> None:
    with pytest.raises(CruciformError, match=r"unknown network|as \(3, 224, 224\)|is a lazy layer"):
        diagnose(network, size)


@pytest.mark.usefixtures("libraries")
def test_the_gain_of_a_normalizer_free_network_is_given_once() -> None:
    """γ makes up for a non-linearity: given to every stage, the variance would grow by γ² with each."""
    from timm import layers

    torch.manual_seed(0)
    network = nn.Sequential(layers.ScaledStdConv2d(64, 64, 3, padding=1, gamma=1.7139))
    closed = nn.Sequential(layers.ScaledStdConv2d(64, 64, 3, padding=1, gain_init=0.0))
    x = torch.randn(4, 64, 16, 16)
    with torch.no_grad():
        for scheme in ("lr", "lr-join", "sf"):
            assert float(convert(network, scheme).model(x).var()) == pytest.approx(float(network(x).var()), rel=0.25)
        assert float(convert(closed, "lr-join").model(x).std(dim=(0, 2, 3)).max()) < 1e-6
