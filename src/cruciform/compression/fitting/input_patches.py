"""The patches that a convolution reads, as rows of a matrix: any rank, stride, dilation and padding mode.

Symbols: ``c`` input channels, ``T`` taps of the window, ``p = c·T`` values of a patch, ordered (channel, taps), as the
columns of a kernel (d, c, window) that is flattened after its first axis.
"""

from math import prod

import torch
from torch import Tensor

from cruciform.nn.padding import pad_or_crop
from cruciform.spec import ConvSpec


def draw_positions(output_size: tuple[int, ...], most: int, generator: torch.Generator) -> Tensor:
    """Return flat indices of output positions, all of them or ``most`` drawn without repetition."""
    total = prod(output_size)
    if total <= most:
        return torch.arange(total)
    return torch.randperm(total, generator=generator)[:most]


def take_patches(x: Tensor, spec: ConvSpec, positions: Tensor) -> Tensor:
    """Return the patches that a convolution reads at some output positions, (batch · positions, p).

    Args:
        x: The layer's input, (batch, c, sizes).
        spec: The convolution; its groups must be 1.
        positions: Flat indices into the output's spatial size.
    """
    mode = "constant" if spec.padding_mode == "zeros" else spec.padding_mode
    output_size = spec.output_size(x.shape[2:])
    padded = pad_or_crop(x, spec.padding, mode)
    index: list[slice | Tensor] = [slice(None), slice(None)]
    at = torch.unravel_index(positions, output_size)
    for axis in range(spec.rank):
        taps = torch.arange(spec.kernel[axis]) * spec.dilation[axis]
        shape = [1] * (1 + spec.rank)
        shape[1 + axis] = -1
        place = (at[axis] * spec.stride[axis]).reshape(-1, *[1] * spec.rank) + taps.reshape(shape)
        index.append(place.to(x.device))
    taken = padded[tuple(index)]  # (batch, c, positions, taps …)
    return taken.movedim(2, 1).reshape(x.shape[0] * len(positions), -1)


def take_outputs(y: Tensor, positions: Tensor) -> Tensor:
    """Return the outputs of a layer at some positions, (batch · positions, d)."""
    return y.flatten(2)[:, :, positions.to(y.device)].movedim(2, 1).reshape(-1, y.shape[1])
