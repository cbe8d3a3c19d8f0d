"""GoogLeNet as BVLC's Caffe model has it, and the paper's low-rank members: a table of nine modules.

A module's columns: 1×1 | 3×3 reduction, 3×3 | 5×5 reduction, 5×5 | pooling projection. All poolings round up, and
the pooling inside the modules is a maximum (the paper's text says average; the model that it trained does not).
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from cruciform.errors import OptionError, ShapeError
from cruciform.models.network import MODELS, Network, NetworkConfig, conv_layer, pooled, same_conv
from cruciform.schemes import Scheme


class Inception(NamedTuple):
    """The widths of one module."""

    name: str
    one: int
    reduce3: int
    three: int
    reduce5: int
    five: int
    project: int

    @property
    def width(self) -> int:
        """The output channels of the module."""
        return self.one + self.three + self.five + self.project


INCEPTION_MODULES = (
    Inception("3a", 64, 96, 128, 16, 32, 32),
    Inception("3b", 128, 128, 192, 32, 96, 64),
    Inception("4a", 192, 96, 208, 16, 48, 64),
    Inception("4b", 160, 112, 224, 24, 64, 64),
    Inception("4c", 128, 128, 256, 24, 64, 64),
    Inception("4d", 112, 144, 288, 32, 64, 64),
    Inception("4e", 256, 160, 320, 32, 128, 128),
    Inception("5a", 256, 160, 320, 32, 128, 128),
    Inception("5b", 384, 192, 384, 48, 128, 128),
)
POOL_AFTER = ("3b", "4e")
AUXILIARY_AFTER = {"4a": "aux1", "4d": "aux2"}


@dataclass(frozen=True, kw_only=True)
class GoogLeNetConfig(NetworkConfig):
    """A GoogLeNet.

    Attributes:
        scheme: How the 3×3 and 5×5 layers inside the modules are computed.
        stem_scheme: How the two spatial layers before the modules are computed.
        pool_padding: Padding of the stride-2 poolings: 0 as in BVLC's model, or 1, which the published counts of
            the low-rank networks imply (maps of 57, 29, 15 and 8 instead of 56, 28, 14 and 7).
        auxiliary: Whether there are auxiliary classifiers, which run in training only.
        dropout: Dropout before the classifier.
    """

    smallest_input: ClassVar[int] = 80

    scheme: str | Scheme = "full"
    stem_scheme: str | Scheme = "full"
    pool_padding: int = 0
    auxiliary: bool = True
    dropout: float = 0.4

    @property
    def maps(self) -> tuple[int, int]:
        """Sizes of the maps in the modules 4 and 5."""
        size = pooled((self.input_size + 1) // 2, 3, 2, self.pool_padding)
        for _ in range(2):
            size = pooled(size, 3, 2, self.pool_padding)
        last = pooled(size, 3, 2, self.pool_padding)
        if last < 1 or (self.auxiliary and size < 5):
            raise OptionError(
                f"input_size={self.input_size} leaves feature maps of {size} for the auxiliary heads, which need 5; "
                "give at least 80, or auxiliary=False"
            )
        return size, last

    def build(self) -> "GoogLeNet":
        """Build the network."""
        return GoogLeNet(self)


class TrainingLogits(NamedTuple):
    """What a GoogLeNet with auxiliary heads returns in training; weigh the auxiliary losses by 0.3."""

    main: Tensor
    aux1: Tensor
    aux2: Tensor


class GoogLeNet(Network):
    """A stem, nine inception modules, a classifier; two auxiliary classifiers in training."""

    def __init__(self, config: GoogLeNetConfig) -> None:
        super().__init__(config)
        middle, last = config.maps
        self.conv1 = _conv_relu(config.in_channels, 64, 7, config.stem_scheme, stride=2)
        self.conv2_reduce = _conv_relu(64, 64, 1, "full")
        self.conv2 = _conv_relu(64, 192, 3, config.stem_scheme)
        self.norm = nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75)
        self.pool = nn.MaxPool2d(3, stride=2, padding=config.pool_padding, ceil_mode=True)
        self.inceptions = nn.ModuleDict()
        self.heads = nn.ModuleDict()
        c = 192
        for module in INCEPTION_MODULES:
            self.inceptions[module.name] = InceptionModule(c, module, config.scheme)
            c = module.width
            if config.auxiliary and module.name in AUXILIARY_AFTER:
                self.heads[AUXILIARY_AFTER[module.name]] = AuxiliaryHead(c, middle, config.num_classes)
        self.last_pool = min(7, last)
        self.pool5 = nn.AvgPool2d(self.last_pool, stride=1)
        self.dropout = nn.Dropout(config.dropout)
        self.last_map = last - self.last_pool + 1
        self.classifier = nn.Linear(c * self.last_map**2, config.num_classes)
        self.exceptions = {"classifier": None, **{f"heads.{name}.classifier": None for name in self.heads}}
        # What reads the same input, the pooling projection included, shares its fan-out.
        self.siblings = [
            [f"inceptions.{module.name}.{branch}.0" for branch in ("one", "reduce3", "reduce5", "project")]
            for module in INCEPTION_MODULES
        ]

    def forward(self, x: Tensor) -> Tensor | TrainingLogits:
        """Return the logits; in training, with auxiliary heads, those of all three classifiers."""
        self.check_channels(x)
        x = self.norm(self.pool(self.conv1(x)))
        x = self.pool(self.norm(self.conv2(self.conv2_reduce(x))))
        side: dict[str, Tensor] = {}
        for name, module in self.inceptions.items():
            x = module(x)
            if self.training and (head := AUXILIARY_AFTER.get(name, "")) in self.heads:
                side[head] = self.heads[head](x)
            if name in POOL_AFTER:
                x = self.pool(x)
        x = self.pool5(x)
        if x.shape[-1] != self.last_map or x.shape[-2] != self.last_map:
            raise ShapeError(
                f"the classifier takes {self.last_map}×{self.last_map} feature maps, not {x.shape[-2]}×{x.shape[-1]}; "
                "for images of another size create the network with input_size=..."
            )
        logits: Tensor = self.classifier(self.dropout(x.flatten(1)))
        return TrainingLogits(logits, side["aux1"], side["aux2"]) if side else logits


class InceptionModule(nn.Module):
    """Four branches side by side, concatenated."""

    def __init__(self, c: int, widths: Inception, scheme: str | Scheme) -> None:
        super().__init__()
        self.one = _conv_relu(c, widths.one, 1, "full")
        self.reduce3 = _conv_relu(c, widths.reduce3, 1, "full")
        self.three = _conv_relu(widths.reduce3, widths.three, 3, scheme)
        self.reduce5 = _conv_relu(c, widths.reduce5, 1, "full")
        self.five = _conv_relu(widths.reduce5, widths.five, 5, scheme)
        self.pool = nn.MaxPool2d(3, stride=1, padding=1)
        self.project = _conv_relu(c, widths.project, 1, "full")

    def forward(self, x: Tensor) -> Tensor:
        """Return the concatenation of the branches."""
        branches = [
            self.one(x),
            self.three(self.reduce3(x)),
            self.five(self.reduce5(x)),
            self.project(self.pool(x)),
        ]
        return torch.cat(branches, dim=1)


class AuxiliaryHead(nn.Module):
    """A classifier on the side of the network, for training."""

    def __init__(self, c: int, size: int, num_classes: int) -> None:
        super().__init__()
        self.pool = nn.AvgPool2d(5, stride=3, ceil_mode=True)
        self.reduce = _conv_relu(c, 128, 1, "full")
        self.hidden = nn.Linear(128 * pooled(size, 5, 3) ** 2, 1024)
        self.relu = nn.ReLU(inplace=True)
        self.dropout = nn.Dropout(0.7)
        self.classifier = nn.Linear(1024, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        x = self.reduce(self.pool(x)).flatten(1)
        logits: Tensor = self.classifier(self.dropout(self.relu(self.hidden(x))))
        return logits


def _conv_relu(c: int, d: int, kernel: int, scheme: str | Scheme, *, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(conv_layer(same_conv(c, d, kernel, stride=stride), scheme), nn.ReLU(inplace=True))


MODELS.add("googlenet", GoogLeNetConfig())
MODELS.add("googlenet_lr", GoogLeNetConfig(scheme="lr"))
MODELS.add("googlenet_lr_conv1", GoogLeNetConfig(scheme="lr", stem_scheme="lr"))
