"""Layers of residual networks are fitted to the sum that their outputs become part of."""

from collections.abc import Callable, Iterable

import pytest
import torch
from torch import Tensor, nn

from cruciform.compression.fitting.layer_moments import Sampling, Shortcut, collect_moments, sample_outputs
from cruciform.compression.fitting.shortcuts import find_shortcuts
from cruciform.nn.inspect import spec_of

CHANNELS = 6


class Residual(nn.Module):
    """A branch of two convolutions with a batch norm after the second, added to the input before a ReLU."""

    def __init__(self, *, shared: bool = False) -> None:
        super().__init__()
        self.first = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
        self.second = self.first if shared else nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(CHANNELS)
        self.act = nn.ReLU(inplace=True)
        with torch.no_grad():
            self.norm.weight.uniform_(0.5, 2)
            self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x: Tensor) -> Tensor:
        made = self.norm(self.second(torch.tanh(self.first(x))))
        made += x
        y: Tensor = self.act(made)
        return y


class Scaled(nn.Module):
    """Two residual blocks within a third, all of whose sums are functions, as in RRDB networks."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Branch() for _ in range(2))
        self.after = nn.Conv2d(CHANNELS, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        made = x
        for block in self.blocks:
            made = block(made)
        y: Tensor = self.after(x + 0.5 * made)
        return y


class Branch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return x + 0.2 * self.conv(torch.tanh(x))


def batches() -> Iterable[Tensor]:
    return torch.randn(12, CHANNELS, 8, 8, generator=torch.Generator().manual_seed(0)).split(6)


@pytest.fixture
def residual() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(Residual(), Residual()).eval()


def test_a_join_is_what_reads_the_sum_with_the_gain_of_every_channel(residual: nn.Module) -> None:
    names = ["0.first", "0.second", "1.first", "1.second"]
    found = find_shortcuts(residual, names, batches)
    assert {name: shortcut.reader for name, shortcut in found.items()} == {"0.second": "0.act", "1.second": "1.act"}
    norm = residual.get_submodule("0.norm")
    gain = norm.weight.detach() / (norm.running_var + norm.eps).sqrt()
    assert torch.allclose(found["0.second"].gain, gain, rtol=1e-4)


def test_the_last_shortcut_counts_with_the_gains_of_all() -> None:
    torch.manual_seed(0)
    found = find_shortcuts(Scaled().eval(), ["blocks.0.conv", "blocks.1.conv"], batches)
    assert {name: shortcut.reader for name, shortcut in found.items()} == {
        "blocks.0.conv": "blocks.1",
        "blocks.1.conv": "after",
    }
    assert torch.allclose(found["blocks.0.conv"].gain, torch.full((CHANNELS,), 0.2), rtol=1e-4)
    assert torch.allclose(found["blocks.1.conv"].gain, torch.full((CHANNELS,), 0.1), rtol=1e-4)


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Sequential(nn.Conv2d(CHANNELS, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 2, 1)),
        lambda: Residual(shared=True),
        Branch,
    ],
    ids=["nothing is added", "a layer runs twice", "no module reads the sum"],
)
def test_other_layers_have_no_join(make: Callable[[], nn.Module]) -> None:
    model = make().eval()
    names = [name for name, module in model.named_modules() if isinstance(module, nn.Conv2d)]
    assert find_shortcuts(model, names, batches) == {}


def test_finding_joins_leaves_the_network_as_it_is(residual: nn.Module) -> None:
    before = [tensor.clone() for tensor in residual.state_dict().values()]
    find_shortcuts(residual, ["0.second"], batches)
    assert all(torch.equal(a, b) for a, b in zip(before, residual.state_dict().values(), strict=True))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in residual.modules())


def test_a_joined_layer_may_give_what_brings_the_sum_to_the_originals(residual: nn.Module) -> None:
    """By hand: what it gives now, and what is missing at the reader, in units of its outputs; before that its own."""
    name = "1.second"
    specs, sampling = {name: spec_of(residual.get_submodule(name))}, Sampling(inputs=12, patches=1e9)  # type: ignore[arg-type]
    shortcuts = find_shortcuts(residual, [name], batches)
    samples = sample_outputs(residual, specs, batches, sampling, shortcuts)
    changed = nn.Sequential(Residual(), Residual()).eval()
    changed.load_state_dict(residual.state_dict())
    with torch.no_grad():
        changed.get_parameter("0.first.weight").mul_(0.8)  # an error that travels along the branch and past it
    (moments,) = collect_moments(changed, specs, batches, sampling, samples=samples, shortcuts=shortcuts)[name]

    with torch.no_grad():
        x = torch.cat(list(batches()))
        h, h_now = residual[0](x), changed[0](x)
        block = residual[1]
        y_now = block.second(torch.tanh(block.first(h_now)))
        z, z_now = (block.norm(block.second(torch.tanh(block.first(one)))) + one for one in (h, h_now))
        wanted = y_now + (z - z_now) / shortcuts[name].gain.reshape(-1, 1, 1)
        plain = block.second(torch.tanh(block.first(h)))
    for some, targets in ((slice(CHANNELS), plain), (slice(CHANNELS, None), wanted)):
        found, rows = moments.of_outputs(some), targets.movedim(1, -1).flatten(0, 2).double()
        assert torch.allclose(found.output_mean, rows.mean(0), atol=1e-5)
        assert torch.allclose(found.outputs, rows.T @ rows / len(rows), atol=1e-5)
    assert not torch.allclose(plain, wanted, atol=0.01)


def test_without_errors_both_are_the_same(residual: nn.Module) -> None:
    specs = {"0.second": spec_of(residual.get_submodule("0.second"))}  # type: ignore[arg-type]
    sampling = Sampling(inputs=12)
    found = []
    for shortcuts in ({}, find_shortcuts(residual, list(specs), batches)):
        samples = sample_outputs(residual, specs, batches, sampling, shortcuts)
        (moments,) = collect_moments(residual, specs, batches, sampling, samples=samples, shortcuts=shortcuts)[
            "0.second"
        ]
        found.append(moments)
    alone, both = found
    assert torch.allclose(torch.cat([alone.cross] * 2), both.cross, atol=1e-5)
    assert torch.equal(alone.inputs, both.inputs)
    assert alone.count == both.count


def test_a_reader_of_two_layers_is_read_for_both() -> None:
    """As the two convolutions of a ResNet's block with a convolution in the shortcut."""

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = nn.Conv2d(CHANNELS, 4, 3, padding=1), nn.Conv2d(CHANNELS, 4, 1)
            self.act = nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.act(self.one(x) - 2 * self.other(x))
            return y

    torch.manual_seed(0)
    model = Both().eval()
    found = find_shortcuts(model, ["one", "other"], batches)
    assert {name: (shortcut.reader, round(float(shortcut.gain[0]), 3)) for name, shortcut in found.items()} == {
        "one": ("act", 1.0),
        "other": ("act", -2.0),
    }
    assert isinstance(found["one"], Shortcut)
