"""Network-in-Network for CIFAR-10 (the Caffe model) and the paper's members: three blocks of spatial and 1×1 layers.

The paper trains on 30×30 crops: so its counts say, 32×32 images are allowed as well. A ReLU follows every
convolution, the last one included.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from torch import Tensor, nn

from cruciform.errors import OptionError
from cruciform.models.network import MODELS, Network, NetworkConfig, conv_layer, is_normed, same_conv
from cruciform.nn.init_rules import NORMED_RULE
from cruciform.schemes import Scheme


class Spatial(NamedTuple):
    """A spatial layer: its kernel size, its filters and how it is computed."""

    kernel: int
    filters: int
    scheme: str | Scheme = "full"


Blocks = tuple[tuple[Spatial, ...], ...]

POINTWISE = ((160, 96), (192, 192), (192,))
"""Widths of the 1×1 layers in each block; the last block ends with one for the classes."""

FIVE: Blocks = ((Spatial(5, 192),), (Spatial(5, 192),), (Spatial(3, 192),))
# Of the two layers that replace conv2 the second has 3·192·192 weights by the published counts: it is low-rank.
THREE_BLOCKS: Blocks = ((Spatial(3, 192),), (Spatial(3, 192), Spatial(3, 192, "lr")), (Spatial(3, 192),))
THREE_PRINTED: Blocks = ((Spatial(3, 192),), (Spatial(3, 192),) * 2, (Spatial(3, 192),))
THREE_LR: Blocks = tuple(tuple(layer._replace(scheme="lr") for layer in block) for block in THREE_PRINTED)


@dataclass(frozen=True, kw_only=True)
class NiNConfig(NetworkConfig):
    """A Network-in-Network.

    Attributes:
        blocks: The spatial layers of each block.
        second_pool: The pooling after the second block: average in the Caffe model, maximum in the original.
        dropout: Dropout after the two poolings.
        norm: ``none``, or ``batch`` for a batch norm after every convolution but that of the classes, which the paper's
            networks do not have.
    """

    smallest_input: ClassVar[int] = 16

    num_classes: int = 10
    input_size: int = 32
    blocks: Blocks = FIVE
    second_pool: Literal["average", "maximum"] = "average"
    dropout: float = 0.5
    norm: str = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        is_normed(self.norm)
        if self.second_pool not in ("average", "maximum"):
            raise OptionError(f"second_pool={self.second_pool!r} is neither 'average' nor 'maximum'")

    def build(self) -> "NiN":
        """Build the network."""
        return NiN(self)


OPEN = 2.0
"""Initial bias of the classes: several deviations of the initial logits."""


class NiN(Network):
    """Three blocks of spatial and 1×1 layers, global average pooling, no fully connected layer."""

    def __init__(self, config: NiNConfig) -> None:
        super().__init__(config)
        self.features = nn.Sequential()
        c, normed = config.in_channels, is_normed(config.norm)
        for number, (spatial, pointwise) in enumerate(zip(config.blocks, POINTWISE, strict=True), start=1):
            for index, layer in enumerate(spatial, start=1):
                name = f"conv{number}" if len(spatial) == 1 else f"conv{number}_{index}"
                self._append(name, c, layer, normed=normed)
                c = layer.filters
            last = number == len(POINTWISE)
            for index, width in enumerate(pointwise, start=1):
                self._append(f"cccp{number}_{index}", c, Spatial(1, width), normed=normed)
                c = width
            if last:
                classes = f"cccp{number}_{len(pointwise) + 1}"
                self._append(classes, c, Spatial(1, config.num_classes), normed=False)
            else:
                average = number == 2 and config.second_pool == "average"
                pool = nn.AvgPool2d if average else nn.MaxPool2d
                self.features.add_module(f"pool{number}", pool(3, stride=2, ceil_mode=True))
                self.features.add_module(f"drop{number}", nn.Dropout(config.dropout))
        self.pool3 = nn.AdaptiveAvgPool2d(1)
        # The ReLU after the classes starts open, or it closes for good within some steps, class after class. Softmax
        # does not see a number that is added to all classes.
        self.biases, self.exceptions = {f"features.{classes}": OPEN}, {f"features.{classes}": None}
        if normed:
            self.rule = NORMED_RULE

    def _append(self, name: str, c: int, layer: Spatial, *, normed: bool) -> None:
        spec = same_conv(c, layer.filters, layer.kernel, bias=not normed)
        self.features.add_module(name, conv_layer(spec, layer.scheme))
        if normed:
            self.features.add_module(f"norm_{name}", nn.BatchNorm2d(layer.filters))
        self.features.add_module(f"relu_{name}", nn.ReLU(inplace=True))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        self.check_channels(x)
        logits: Tensor = self.pool3(self.features(x)).flatten(1)
        return logits


MODELS.add("nin", NiNConfig())
MODELS.add("nin_c3", NiNConfig(blocks=THREE_BLOCKS))
MODELS.add("nin_c3_printed", NiNConfig(blocks=THREE_PRINTED))
MODELS.add("nin_c3_lr", NiNConfig(blocks=THREE_LR))
