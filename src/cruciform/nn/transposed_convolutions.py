"""Transposed convolutions as calls, with weights as plans have them: (d, c, window). Torch stores (c, d, window)."""

from collections.abc import Callable
from typing import Final

import torch.nn.functional as F
from torch import Tensor

from cruciform.nn.padding import pad_or_crop
from cruciform.spec import ConvSpec, Ints, Pads

TRANSPOSED: Final[dict[int, Callable[..., Tensor]]] = {
    1: F.conv_transpose1d,
    2: F.conv_transpose2d,
    3: F.conv_transpose3d,
}  # fmt: skip


def swap_channels(weight: Tensor, groups: int) -> Tensor:
    """Return the weight as torch stores it from the weight as plans have it, or the other way round."""
    if groups == 1:
        return weight.transpose(0, 1)
    swapped: Tensor = weight.unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)
    return swapped


class TransposedGroupConv:
    """One filter group of a transposed stage as a call.

    Args:
        spec: Of the stage.
        padding: What torch crops of the output on both sides.
        dilation: Of the group.
        pads: What is cropped instead, before and after, where torch can't: below 0, zeros are added.
    """

    def __init__(self, spec: ConvSpec, padding: Ints, dilation: Ints, pads: Pads | None) -> None:
        self.convolve = TRANSPOSED[spec.rank]
        self.geometry = spec.stride, padding, spec.output_padding, spec.groups, dilation
        self.crops: Pads | None = None if pads is None else tuple((-before, -after) for before, after in pads)

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Run the group on an input."""
        kernel = swap_channels(weight, self.geometry[3])
        if self.crops is None:
            return self.convolve(x, kernel, bias, *self.geometry)
        y = pad_or_crop(self.convolve(x, kernel, None, *self.geometry), self.crops, "constant")
        # Zeros that were added have the bias too.
        return y if bias is None else y + bias.reshape(-1, *[1] * len(self.crops))
