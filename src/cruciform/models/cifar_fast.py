"""A small modern network for 32×32 images, dense or of basis filters: whitened patches, three blocks, one linear layer.

After the public description of airbench94 (Jordan, "94% on CIFAR-10 in 3.29 seconds on a single GPU", 2024), whose
dense network ``cifar_fast`` is. A member is a table: for each block its width, and for each of its convolutions a
scheme. What low rank saves can be spent on depth: a third convolution a block, with a residual around the last two.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from cruciform.errors import OptionError
from cruciform.models.network import MODELS, Network, NetworkConfig, conv_layer
from cruciform.nn.composite import CompositeConv
from cruciform.nn.inspect import plan_of
from cruciform.nn.patch_whitening import whitening_kernel
from cruciform.spec import ConvSpec

PATCH = 2
REGULARISER = 5e-4
NON_LINEARITIES = {"gelu": nn.GELU, "relu": nn.ReLU, "silu": nn.SiLU, "hardswish": nn.Hardswish}
FORGETTING = 0.4
"""Share of a batch's own statistics in the running ones: training is short, old ones are soon wrong."""


@dataclass(frozen=True, kw_only=True)
class CifarFastConfig(NetworkConfig):
    """A member of the family.

    Attributes:
        widths: Filters of the convolutions of each block.
        schemes: How each convolution of each block is computed: also how many there are. The first of a block stands
            in front of its pooling.
        residual: Whether a block adds what its first convolution came to, to what the others made of it.
        activation: ``gelu``, ``relu``, ``silu`` or ``hardswish``.
        scale: What the logits are multiplied by.
    """

    smallest_input: ClassVar[int] = 16

    num_classes: int = 10
    input_size: int = 32
    widths: Sequence[int] = (64, 256, 256)
    schemes: Sequence[Sequence[str]] = (("full", "full"),) * 3
    residual: bool = False
    activation: str = "gelu"
    scale: float = 1 / 9

    def __post_init__(self) -> None:
        super().__post_init__()
        # Options from files are lists; equal configs must be equal.
        object.__setattr__(self, "widths", tuple(self.widths))
        object.__setattr__(self, "schemes", tuple(tuple(block) for block in self.schemes))
        if len(self.widths) != len(self.schemes) or not all(self.schemes):
            raise OptionError(
                f"widths={list(self.widths)} and schemes={[list(block) for block in self.schemes]} must have an item "
                "for each block, and each block a scheme for each of its convolutions, one at least"
            )
        if self.activation not in NON_LINEARITIES:
            raise OptionError(f"activation={self.activation!r} is not one of {', '.join(NON_LINEARITIES)}")
        if self.last_map < 1:
            least = PATCH - 1 + (1 << len(self.widths))
            raise OptionError(f"input_size={self.input_size} is too small for {len(self.widths)} blocks; give {least}")

    @property
    def last_map(self) -> int:
        """Height and width of the maps of the last block."""
        return (self.input_size - PATCH + 1) >> len(self.widths)

    def build(self) -> "CifarFast":
        """Build the network."""
        return CifarFast(self)


class Block(nn.Module):
    """A convolution with a pooling, and others after it, each with batch norm and GELU."""

    def __init__(self, c: int, d: int, schemes: Sequence[str], *, residual: bool, activation: str) -> None:
        super().__init__()
        self.residual = residual and len(schemes) > 1
        self.pool = nn.MaxPool2d(2)
        self.convs = nn.ModuleList()
        self.norms = nn.ModuleList()
        for scheme in schemes:
            self.convs.append(conv_layer(ConvSpec(c, d, (3, 3), padding=1, bias=False), scheme))
            self.norms.append(nn.BatchNorm2d(d))
            c = d
        for module in self.modules():  # those inside efficient layers too
            if isinstance(module, nn.BatchNorm2d):
                module.momentum = FORGETTING
        self.act = NON_LINEARITIES[activation]()

    def forward(self, x: Tensor) -> Tensor:
        """Return maps of half the height and width."""
        conv = self.convs[0]
        # Pooled before it is concatenated, a sixth of a training step is saved. In evaluation engines do as they like.
        early = self.training and isinstance(conv, CompositeConv)
        pooled = conv(x, self.pool) if early else self.pool(conv(x))
        x = first = self.act(self.norms[0](pooled))
        last = len(self.convs) - 1
        for index in range(1, len(self.convs)):
            x = self.norms[index](self.convs[index](x))
            x = self.act(x + first if self.residual and index == last else x)
        return x


class CifarFast(Network):
    """Whitened patches, blocks, a global maximum and a linear layer."""

    fitted_on = 5_000
    fitted = ("whiten",)
    # With the paper's std, a batch norm after a pooling lets the gradient grow 100-fold, and learning is slower.
    rule = "identity"

    def __init__(self, config: CifarFastConfig) -> None:
        super().__init__(config)
        c = 2 * config.in_channels * PATCH**2
        self.whiten = nn.Conv2d(config.in_channels, c, PATCH)
        self.act = NON_LINEARITIES[config.activation]()
        self.blocks = nn.Sequential()
        for number, (width, schemes) in enumerate(zip(config.widths, config.schemes, strict=True), start=1):
            block = Block(c, width, schemes, residual=config.residual, activation=config.activation)
            self.blocks.add_module(f"block{number}", block)
            c = width
        self.pool = nn.AdaptiveMaxPool2d(1)
        self.head = nn.Linear(c, config.num_classes, bias=False)
        self.scale = config.scale
        self.exceptions = dict.fromkeys(self._before_activations(), config.activation)
        self.exceptions |= {"whiten": config.activation, "head": None}

    def _before_activations(self) -> Iterator[str]:
        """Yield the layers of the blocks that the activation follows: of several in sequence the last."""
        for block_name, block in self.blocks.named_children():
            for number, conv in enumerate(block.get_submodule("convs").children()):
                *_, (inner, _) = ((name, part) for name, part in conv.named_modules() if plan_of(part) is not None)
                yield ".".join(filter(None, ("blocks", block_name, "convs", str(number), inner)))

    @torch.no_grad()
    def fit_(self, images: Tensor) -> None:
        """Set the first layer to whiten patches of these images."""
        nn.init.zeros_(self.get_parameter("whiten.bias"))
        self.whiten.weight.copy_(whitening_kernel(images, PATCH, regulariser=REGULARISER))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        self.check_channels(x)
        features = self.pool(self.blocks(self.act(self.whiten(x)))).flatten(1)
        logits: Tensor = self.head(features) * self.scale
        return logits


MODELS.add("cifar_fast", CifarFastConfig())
MODELS.add("cifar_fast_lr", CifarFastConfig(schemes=(("lr",) * 2,) * 3))
MODELS.add("cifar_fast_cross", CifarFastConfig(schemes=(("cross:full=0.25",) * 2,) * 3))
THREE_LR_LAYERS = (("lr",) * 3,) * 3
MODELS.add("cifar_fast_lr3", CifarFastConfig(schemes=THREE_LR_LAYERS, residual=True))
# What is left of the saving goes into the last block, where maps are small: a half wider there for a sixth more MACs.
MODELS.add("cifar_fast_lr3_wide", CifarFastConfig(schemes=THREE_LR_LAYERS, residual=True, widths=(64, 256, 384)))
