"""Mixup (Zhang et al., 2018): training on convex combinations of pairs of images."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Mixture(NamedTuple):
    """How the images of a batch are mixed.

    Attributes:
        partners: For each image, the index of the one it is mixed with.
        weight: λ, the weight of the image itself.
    """

    partners: Tensor
    weight: float


def draw_mixture(size: int, alpha: float, random: np.random.Generator) -> Mixture | None:
    """Draw the partners and λ ~ Beta(α, α) of a batch; None where α is 0."""
    if not alpha:
        return None
    return Mixture(torch.from_numpy(random.permutation(size)), float(random.beta(alpha, alpha)))


def mix(images: Tensor, mixture: Mixture | None) -> Tensor:
    """Return the mixed images."""
    if mixture is None:
        return images
    return torch.lerp(images[mixture.partners.to(images.device)], images, mixture.weight)
