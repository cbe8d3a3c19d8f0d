"""What is made small: cross entropy, with smoothed labels, mixed pairs and auxiliary heads where a recipe has them."""

from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from cruciform.errors import ShapeError
from cruciform.training.recipe.recipe import LossTable


class Mixture(NamedTuple):
    """How pairs of images are mixed.

    Attributes:
        partners: The image that each is mixed with.
        share: Of the first of each pair.
    """

    partners: Tensor
    share: float


def draw_mixture(size: int, alpha: float, random: np.random.Generator) -> Mixture | None:
    """Draws how a batch is mixed; None where α is 0."""
    if not alpha:
        return None
    return Mixture(torch.from_numpy(random.permutation(size)), float(random.beta(alpha, alpha)))


def mix(images: Tensor, mixture: Mixture | None) -> Tensor:
    """Returns mixed images."""
    if mixture is None:
        return images
    return torch.lerp(images[mixture.partners.to(images.device)], images, mixture.share)


def main_logits(output: Any, classes: int | None = None) -> Tensor:
    """Returns the logits of a network that may return those of auxiliary heads after them.

    Args:
        output: Of the network.
        classes: How many logits an image must have.
    """
    logits = output[0] if isinstance(output, tuple) else output
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ShapeError(f"a classifier returns logits of shape (batch, classes), not {shape}")
    if classes not in (None, logits.shape[1]):
        raise ShapeError(
            f"the network tells {logits.shape[1]} classes apart, the data has {classes}: build it for {classes}; one "
            f"by name with --set model.options.num_classes={classes} (MONAI's call it out_channels)"
        )
    return logits


def losses(output: Any, labels: Tensor, table: LossTable, mixture: Mixture | None) -> Tensor:
    """Returns the loss of each sample.

    Args:
        output: Of the network: logits, or a tuple of them, the auxiliary heads' after the main ones.
        labels: The classes.
        table: What the recipe says.
        mixture: How the images were mixed.
    """
    heads = output if isinstance(output, tuple) else (output,)
    total = torch.zeros(len(labels), device=labels.device)
    for index, logits in enumerate(heads):
        if logits is None:  # torchvision's networks have empty places for heads that are switched off
            continue
        weight = table.auxiliary if index else 1.0
        total = total + weight * _mixed(logits.float(), labels, table.smoothing, mixture)
    return total


def _mixed(logits: Tensor, labels: Tensor, smoothing: float, mixture: Mixture | None) -> Tensor:
    own = F.cross_entropy(logits, labels, reduction="none", label_smoothing=smoothing)
    if mixture is None:
        return own
    others = labels[mixture.partners.to(labels.device)]
    return torch.lerp(F.cross_entropy(logits, others, reduction="none", label_smoothing=smoothing), own, mixture.share)
