"""Passes of a network that start where a layer does."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cruciform.compression.fitting import prefix as prefix_module
from cruciform.compression.fitting.prefix import Prefix

IMAGES = torch.randn(10, 4, 6, 6, generator=torch.Generator().manual_seed(0))


class Counted(nn.Conv2d):
    """A convolution that counts the inputs it is run on."""

    def __init__(self) -> None:
        super().__init__(4, 4, 3, padding=1)
        self.inputs = 0

    def forward(self, x: Tensor) -> Tensor:
        self.inputs += len(x)
        return super().forward(x)


class Layers(nn.Module):
    """Five convolutions in a row, in two containers, with a non-linearity that writes into its input."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Sequential(Counted(), nn.ReLU(inplace=True), Counted())
        self.body = nn.ModuleList(Counted() for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.head(x)
        for layer in self.body:
            x = torch.relu_(layer(x))
        return x


class Residual(Layers):
    """Every output is added to all before it, in place."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.head(x)
        for layer in self.body:
            x += layer(x)
        return x


class Dense(Layers):
    """Every layer reads the mean of all before it."""

    def forward(self, x: Tensor) -> Tensor:
        found = [self.head(x)]
        for layer in self.body:
            found.append(layer(torch.stack(found).mean(0)))
        return found[-1]


class Around(Layers):
    """As a U-Net has it: what the head gives is read by the last layer, and by none before it but the first."""

    def forward(self, x: Tensor) -> Tensor:
        x = head = self.head(x)
        for layer in self.body[:2]:
            x = layer(x)
        return self.body[2](x + head)


class Aside(Layers):
    """The head's output reaches the last layer by an attribute."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.aside = self.head(x)
        self.keep = self.aside * 1.0
        for layer in self.body[:2]:
            x = layer(torch.zeros_like(x))
        return self.body[2](x + self.keep)


class KeptInside(nn.Module):
    """A module that keeps what it gave, as feature extractors do."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = Counted()

    def forward(self, x: Tensor) -> Tensor:
        self.kept = self.conv(x)
        return self.kept * 0.5


class AroundInside(Layers):
    """The last layer reads what the head's module keeps, not what it gives."""

    def __init__(self) -> None:
        super().__init__()
        self.head = KeptInside()  # type: ignore[assignment]

    def forward(self, x: Tensor) -> Tensor:
        x = self.head(x)
        for layer in self.body[:2]:
            x = layer(x)
        return self.body[2](x + self.head.kept)


class Twice(Layers):
    """The first layer of the body is run again at the end."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.head(x)
        for layer in (*self.body, self.body[0]):
            x = layer(x)
        return x


class Wary(Layers):
    """Its own code refuses NaN."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.head(x)
        for layer in self.body:
            x = layer(x)
            if x.isnan().any():
                raise ValueError("NaN")
        return x


NETWORKS = [Layers, Residual, Dense, Around, Aside, AroundInside, Twice, Wary]
LAYERS = ["head.0", "head.2", "body.0", "body.1", "body.2"]


def outputs(model: nn.Module, layer: str, prefix: Prefix | None) -> Tensor:
    """Return what a network gives to all images, with a layer that is changed for good after it was looked at."""

    def run(images: Tensor) -> list[Tensor]:
        with torch.no_grad():
            return [model(images)]

    batches = IMAGES.split(4)
    seen = [found for _, found in prefix.over(layer, run, batches)] if prefix else list(map(run, batches))
    return torch.cat([found[0] for found in seen])


@pytest.mark.parametrize("kind", NETWORKS)
def test_a_pass_gives_what_it_gives_in_full(kind: Callable[[], Layers]) -> None:
    model = kind().eval()
    layers = [name for name in LAYERS if name in dict(model.named_modules())]
    prefix = Prefix(model, IMAGES[:1])
    for layer in (*layers, layers[0], layers[-1]):  # and back to the start
        for _ in range(3):  # the layer itself may change between passes
            with torch.no_grad():
                model.get_submodule(layer).weight.mul_(1.2)  # type: ignore[union-attr, operator]
            assert torch.equal(outputs(model, layer, prefix), outputs(model, layer, None)), layer
    own = [vars(module) for module in model.modules()]
    assert not any(each["_forward_hooks"] or each["_forward_pre_hooks"] or "forward" in each for each in own)


@pytest.mark.parametrize("kind", [Layers, Residual, Dense, Around])
def test_what_comes_before_a_layer_runs_once(kind: Callable[[], Layers]) -> None:
    model = kind().eval()
    prefix = Prefix(model, IMAGES[:1])
    first: Any = model.head[0]
    for layer in LAYERS:
        outputs(model, layer, prefix)
    first.inputs = 0
    outputs(model, "body.2", prefix)
    assert first.inputs == 2, "two single inputs, to compare with"
    outputs(model, "body.2", prefix)
    assert first.inputs == 2, "compared once a layer"


def test_a_network_that_keeps_values_aside_runs_in_full() -> None:
    model = AroundInside().eval()
    prefix = Prefix(model, IMAGES[:1])
    for layer in ("body.0", "body.1", "body.2"):
        outputs(model, layer, prefix)
    head: Any = model.head.get_submodule("conv")
    head.inputs = 0
    outputs(model, "body.2", prefix)
    assert head.inputs >= len(IMAGES)


def test_more_than_fits_into_memory_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Layers().eval()
    monkeypatch.setattr(prefix_module, "MEMORY", 4 * IMAGES.numel() - 1)
    prefix = Prefix(model, IMAGES[:1])
    first: Any = model.head[0]
    for layer in ("body.0", "body.1"):
        assert torch.equal(outputs(model, layer, prefix), outputs(model, layer, None))
    first.inputs = 0
    outputs(model, "body.1", prefix)
    assert first.inputs == len(IMAGES)
    assert not prefix._start.kept


def test_values_that_nobody_reads_take_no_memory() -> None:
    model = Layers().eval()
    prefix = Prefix(model, IMAGES[:1])
    for layer in LAYERS:
        outputs(model, layer, prefix)
    kept = prefix._start.kept
    assert sorted(kept) == ["body.0", "body.1", "head"]
    assert all(y.untyped_storage().nbytes() == y.element_size() for name in ("head", "body.0") for y in kept[name])
    assert sum(len(y) for y in kept["body.1"]) == len(IMAGES)
