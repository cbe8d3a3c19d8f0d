"""VGG-11 and the paper's variants of it (its table 5): a network is a row of widths and a scheme.

Where the printed table and the published counts disagree both networks exist, ``…_printed`` being the table's.
"""

from collections import OrderedDict
from dataclasses import dataclass

from torch import Tensor, nn

from cruciform.errors import OptionError, ShapeError
from cruciform.models.network import MODELS, Network, NetworkConfig, conv_layer, is_normed, same_conv
from cruciform.nn.init_rules import NORMED_RULE
from cruciform.schemes import Scheme, cross

Widths = tuple[tuple[int, ...], ...]

VGG11: Widths = ((64,), (128,), (256, 256), (512, 512), (512, 512))
WIDE_CONV5: Widths = (*VGG11[:4], (1024, 1024))
HALF: Widths = tuple(tuple(width // 2 for width in stage) for stage in VGG11)
DOUBLE: Widths = tuple(tuple(width * 2 for width in stage) for stage in VGG11)
LARGEST_WIDTH = 8


@dataclass(frozen=True, kw_only=True)
class VGGConfig(NetworkConfig):
    """A VGG network.

    Attributes:
        widths: Output channels of the 3×3 layers; a 2×2 max pooling follows each inner tuple.
        scheme: How every 3×3 layer is computed.
        global_pool: Whether the last pooling is a global maximum (``gmp``) rather than 2×2.
        stride: Stride of the first layer; the paper trains with 2 on MIT Places.
        hidden: Width of the two hidden fully connected layers.
        dropout: Dropout after them.
        width: Factor on the widths of all layers but the last.
        norm: ``none``, or ``batch`` for a batch norm after every convolution, which the paper's networks do not have.
    """

    widths: Widths = VGG11
    scheme: str | Scheme = "full"
    global_pool: bool = True
    stride: int = 1
    hidden: int = 4096
    dropout: float = 0.5
    width: float = 1.0
    norm: str = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        is_normed(self.norm)
        if not 0 < self.width <= LARGEST_WIDTH:
            raise OptionError(f"width={self.width!r} must be above 0 and at most {LARGEST_WIDTH}")

    def scaled(self, width: int) -> int:
        """Return a width times the factor, even, so that halves of the filters can have two shapes."""
        return width if self.width == 1 else max(2, 2 * round(width * self.width / 2))

    @property
    def last_map(self) -> int:
        """Height and width of the maps that the first fully connected layer reads."""
        size = -(-self.input_size // self.stride)
        halvings = len(self.widths) - self.global_pool
        size >>= halvings
        if size < 1:
            raise OptionError(
                f"input_size={self.input_size} is too small for {halvings} poolings at stride {self.stride}; give at "
                f"least {self.stride << halvings}"
            )
        return 1 if self.global_pool else size

    def build(self) -> "VGG":
        """Build the network."""
        return VGG(self)


class VGG(Network):
    """3×3 layers in stages, a pooling after each stage, three fully connected layers."""

    exceptions = {"fc8": None}  # noqa: RUF012

    def __init__(self, config: VGGConfig) -> None:
        super().__init__(config)
        self.last_map = config.last_map
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        c, number, normed = config.in_channels, 0, is_normed(config.norm)
        for stage, widths in enumerate(config.widths, start=1):
            for d in map(config.scaled, widths):
                number += 1
                spec = same_conv(c, d, 3, stride=config.stride if number == 1 else 1, bias=not normed)
                layers[f"conv{number}"] = conv_layer(spec, config.scheme)
                if normed:
                    layers[f"norm{number}"] = nn.BatchNorm2d(spec.out_channels)
                layers[f"relu{number}"] = nn.ReLU(inplace=True)
                c = d
            is_global = config.global_pool and stage == len(config.widths)
            layers[f"pool{stage}"] = nn.AdaptiveMaxPool2d(1) if is_global else nn.MaxPool2d(2)
        self.features = nn.Sequential(layers)
        if normed:
            self.rule = NORMED_RULE
        hidden = config.scaled(config.hidden)
        self.fc6 = nn.Linear(c * self.last_map**2, hidden)
        self.fc7 = nn.Linear(hidden, hidden)
        self.fc8 = nn.Linear(hidden, config.num_classes)
        self.relu = nn.ReLU(inplace=True)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        self.check_channels(x)
        x = self.features(x)
        if x.shape[-1] != self.last_map or x.shape[-2] != self.last_map:
            raise ShapeError(
                f"the fully connected layers take {self.last_map}×{self.last_map} feature maps, not "
                f"{x.shape[-2]}×{x.shape[-1]}; for images of another size create the network with input_size=..."
            )
        x = self.dropout(self.relu(self.fc6(x.flatten(1))))
        x = self.dropout(self.relu(self.fc7(x)))
        logits: Tensor = self.fc8(x)
        return logits


# The counted low-dimensional embedding: for a layer of d filters 0.75 d each way and 0.25 d full, joined to d / 2.
_LDE_COUNTED = cross(width=3.5, full=1 / 7, join=True)
_LDE_PRINTED = cross(width=2, join=True)

MODELS.add("vgg11", VGGConfig(global_pool=False))
MODELS.add("vgg11_gmp", VGGConfig())
MODELS.add("vgg11_gmp_sf", VGGConfig(scheme="sf"))
MODELS.add("vgg11_gmp_lr", VGGConfig(scheme="lr"))
MODELS.add("vgg11_gmp_lr_2x", VGGConfig(scheme="lr", widths=WIDE_CONV5))
MODELS.add("vgg11_gmp_lr_2x_printed", VGGConfig(scheme="lr", widths=DOUBLE))
MODELS.add("vgg11_gmp_lr_join", VGGConfig(scheme="lr-join"))
MODELS.add("vgg11_gmp_lr_join_wfull", VGGConfig(scheme="lr-join-wfull", widths=WIDE_CONV5))
MODELS.add("vgg11_gmp_lr_join_wfull_printed", VGGConfig(scheme="lr-join-wfull"))
MODELS.add("vgg11_gmp_lr_lde", VGGConfig(scheme=_LDE_COUNTED, widths=HALF, stride=2))
MODELS.add("vgg11_gmp_lr_lde_printed", VGGConfig(scheme=_LDE_PRINTED, widths=HALF, stride=2))
