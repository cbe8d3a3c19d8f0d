"""The networks of a front of accuracy over measured time: low-rank ones, and what else would save as many MACs.

    python benchmarks/front_networks.py      counts the MACs of all, and finds their widths again, in 2 minutes

All are of the family ``cifar_fast``: dense and narrow, of basis filters, of efficient layers, dense on smaller images.
Each has three sizes, 0.75, 0.5 and 0.33 of the MACs of ``cifar_fast``. Its widths give it that size, in proportions
close to the usual 64, 256 and 256. They are multiples of what gives each convolution inside whole blocks of 8 channels,
which engines compute at once: in each group, in each half of ``lr`` and in a bottleneck. The cross (3/8, 3/8 and 1/4 of
the filters) would need multiples of 64, too coarse for the MACs; its widths are multiples of 16.

A network of basis filters can also start as the dense one of its widths and become low-rank after a part of the steps
(``warm``); what is deployed is the same.

Both data sets have images of 32×32 here, CIFAR-10 in 10 classes and tinyimagenet100 in 100, and one recipe. Networks
on smaller images read them resized.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any

import torch

from cruciform.measure.macs import profile
from cruciform.models.zoo import create_model
from cruciform.text.text_tables import text_table
from cruciform.training.recipe.cookbook import load_recipe
from cruciform.training.recipe.recipe import Recipe

NETWORK, RECIPE, SIDE = "cifar_fast", "cifar_fast_cifar10", 32
Widths = tuple[int, int, int]
FULL: Widths = (64, 256, 256)
FRACTIONS = (0.75, 0.5, 0.33)
"""Of the MACs of the dense network with its usual widths."""
BLOCK = 8
"""Channels that engines compute at once."""
DATA_SETS: Mapping[str, Sequence[str]] = {
    "cifar10": (),
    "tinyimagenet100": (
        "data={kind = 'folder', path = 'tinyimagenet100', mean = [122.5, 114.3, 101.4], std = [70.6, 68.6, 72.0]}",
        "train_transforms=[{kind = 'random-crop'}, {kind = 'hflip', alternate = true}]",
        "eval_transforms=[{kind = 'center-crop'}]",
    ),
}
"""What each changes of the recipe."""


@dataclass(frozen=True)
class Family:
    """Networks that differ in size.

    Attributes:
        scheme: How every convolution is computed.
        widths: Of the blocks, for each of ``FRACTIONS``.
        multiple: What widths are multiples of.
        convolutions: How many a block has; with more than two there is a residual around all but the first.
        sides: Height and width of the images, for each of ``FRACTIONS``.
    """

    scheme: str
    widths: tuple[Widths, Widths, Widths]
    multiple: int = BLOCK
    convolutions: int = 2
    sides: tuple[int, int, int] = (SIDE,) * 3


FAMILIES = {
    "dense": Family("full", ((56, 216, 224), (48, 168, 176), (32, 144, 144))),
    "cross": Family("cross:full=0.25", ((80, 320, 304), (64, 256, 256), (48, 208, 208)), multiple=16),
    "lr3": Family("lr", ((80, 336, 336), (64, 272, 272), (48, 224, 224)), multiple=16, convolutions=3),
    "grouped_2": Family("grouped:2", ((80, 320, 304), (64, 256, 256), (48, 208, 208)), multiple=16),
    "grouped_4": Family("grouped:4", ((96, 480, 480), (96, 352, 384), (64, 320, 288)), multiple=32),
    "separable": Family("separable", ((168, 688, 688), (136, 560, 552), (112, 440, 448))),
    "bottleneck": Family("bottleneck:0.5", ((80, 256, 256), (64, 208, 224), (48, 176, 160)), multiple=16),
    "resolution": Family("full", ((64, 256, 248), (64, 248, 248), (64, 248, 240)), sides=(28, 24, 20)),
}


OURS = ("cross", "lr3")
"""The families of basis filters."""
LOW_RANK_AFTER = 0.3
"""The fraction of the steps that a warm-started network is dense for."""


@dataclass(frozen=True)
class FrontNetwork:
    """One network of the front.

    Attributes:
        family: The name of its family.
        fraction: Its MACs, of those of the dense network.
        widths: Of its blocks; the family's own where left out.
        warm: Whether it starts as the dense network of the same widths.
    """

    family: str
    fraction: float
    widths: Widths | None = None
    warm: bool = False

    @property
    def line(self) -> str:
        """The name of the networks that differ from it in size alone."""
        return f"{self.family}_warm" if self.warm else self.family

    @property
    def name(self) -> str:
        """Its name in tables."""
        return f"{self.line}_{round(100 * self.fraction)}"

    @property
    def cold(self) -> "FrontNetwork":
        """The network with the same layers that is low-rank from the start: what is deployed."""
        return replace(self, warm=False)

    @property
    def side(self) -> int:
        """Height and width of its images."""
        return dict(zip(FRACTIONS, FAMILIES[self.family].sides, strict=True)).get(self.fraction, SIDE)

    @property
    def options(self) -> dict[str, Any]:
        """The options of ``create_model("cifar_fast", ...)`` but for the number of classes."""
        family = FAMILIES[self.family]
        return {
            "widths": list(self.widths or family.widths[FRACTIONS.index(self.fraction)]),
            "schemes": [[family.scheme] * family.convolutions] * len(FULL),
            "residual": family.convolutions > 2,
            "input_size": self.side,
        }


def front_networks() -> list[FrontNetwork]:
    """Return the networks of all sizes that are trained as they are, family by family."""
    return [FrontNetwork(family, fraction) for family in FAMILIES for fraction in FRACTIONS]


def warm_networks() -> list[FrontNetwork]:
    """Return the networks of basis filters once more, each started as the dense network of its widths."""
    return [FrontNetwork(family, fraction, warm=True) for family in OURS for fraction in FRACTIONS]


FULL_NETWORK = FrontNetwork("dense", 1.0, FULL)
"""The dense network with its usual widths, which fractions of MACs and of times are of."""


def recipe_of(network: FrontNetwork, data_set: str, changes: Sequence[str] = ()) -> Recipe:
    """Return the recipe of a network on a data set: that of all others but for the network and the resolution."""
    own = [*DATA_SETS[data_set], f"model.name={NETWORK}"]
    options = network.options
    if network.warm:  # converted layer by layer, it has the layers that the scheme in its options gives
        options |= {"schemes": [["full"] * len(block) for block in options["schemes"]]}
        own += [f"model.scheme={FAMILIES[network.family].scheme}", f"model.low_rank_after={LOW_RANK_AFTER}"]
    own += [f"model.options.{key}={_as_toml(value)}" for key, value in options.items()]
    side = network.side
    if data_set != "cifar10":
        own.append(f"data.size={side}")
    elif side != SIDE:  # its images have one size, so that they are resized as the first of their transforms
        resize = f"{{kind = 'resize', size = {side}}}"
        crop = f"{{kind = 'random-crop', size = {side}, padding = 2}}"
        own.append(f"train_transforms=[{resize}, {crop}, {{kind = 'hflip', alternate = true}}]")
        own.append(f"eval_transforms=[{resize}]")
    return load_recipe(RECIPE, [*own, *changes])


def _as_toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


@cache
def dense_macs() -> int:
    """Return the MACs of the dense network with its usual widths, for one image."""
    return _macs(FULL_NETWORK)


def count_macs(network: FrontNetwork, *, classes: int = 10) -> int:
    """Return the MACs of a network for one image."""
    with torch.device("meta"):  # counting needs shapes only
        model = create_model(NETWORK, num_classes=classes, **network.options)
    return profile(model, model.config.input_shape).macs


_macs = cache(count_macs)


def find_widths(network: FrontNetwork) -> Widths:
    """Return the widths with which a network has the wanted MACs, by bisection of a factor on the usual widths.

    Of the multiples next to the widths that are found, those are taken with which the MACs are closest.
    """
    multiple, wanted = FAMILIES[network.family].multiple, network.fraction * dense_macs()

    def error(widths: Widths) -> float:
        return _macs(FrontNetwork(network.family, network.fraction, widths)) - wanted

    low, high = 0.25, 6.0  # of the factor, with which MACs increase
    for _ in range(9):
        middle = (low + high) / 2
        first, second, third = (BLOCK * max(1, round(width * middle / BLOCK)) for width in FULL)
        low, high = (middle, high) if error((first, second, third)) <= 0 else (low, middle)
    least = (multiple * max(1, int(width * low / multiple)) for width in FULL)
    return min(product(*((width, width + multiple) for width in least)), key=lambda widths: abs(error(widths)))


def main() -> None:
    rows = []
    for network in front_networks():
        found, macs = find_widths(network), count_macs(network)
        widths = tuple(network.options["widths"])
        rows.append([network.name, str(network.side), str(widths), f"{macs / 1e6:.1f}", str(found)])
    print(text_table(["network", "images", "widths", "MMAC", "widths found"], rows))


if __name__ == "__main__":
    main()
