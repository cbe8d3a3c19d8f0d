"""Padding in any mode, and cropping, as one operation with signed numbers."""

import torch.nn.functional as F
from torch import Tensor

from cruciform.spec import Pads


def pad_or_crop(x: Tensor, pads: Pads, mode: str) -> Tensor:
    """Pad by each number above 0 in the given mode, and cut off by each number below 0."""
    outward = [max(0, number) for pair in reversed(pads) for number in pair]
    if any(outward):
        x = F.pad(x, outward, mode=mode)
    for axis, (before, after) in enumerate(pads):
        if before < 0 or after < 0:
            dim = axis - len(pads)
            length = x.shape[dim] + min(0, before) + min(0, after)
            x = x.narrow(dim, max(0, -before), length)
    return x
