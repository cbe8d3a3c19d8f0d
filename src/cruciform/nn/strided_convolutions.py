"""Strided convolutions on a CPU, computed around what torch 2.13 and its oneDNN get wrong there.

``python benchmarks/engine_sweep.py`` finds such defects, and shows that none is left. Known ones:

- A kernel of one tap along the depth, with a stride there: with one input channel, channels last, the process ends
  (heap corruption, with and without gradients). A 1×1×k kernel with a stride across it: in 16 bits noise.
- A 1×1 kernel with a stride in 2-D, with few input channels, channels last, with AVX2 and no later instructions: the
  gradient of the weights is wrong, or the process ends.
- In bfloat16 and float16 the gradient of the input is left uninitialized after the last window.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from cruciform.spec import Ints, span

HALVES: Final = (torch.bfloat16, torch.float16)


_FOR_OTHERS: ContextVar[bool] = ContextVar("for_other_engines", default=False)


@contextmanager
def for_other_engines() -> Iterator[None]:
    """Export networks with their strides within the block: other engines compute them correctly and faster."""
    token = _FOR_OTHERS.set(True)
    try:
        yield
    finally:
        _FOR_OTHERS.reset(token)


def _is_guarded(x: Tensor) -> bool:
    # Dynamo is asked first, since torch.compile can't look into a context.
    return x.device.type == "cpu" and (torch.compiler.is_dynamo_compiling() or not _FOR_OTHERS.get())


def strided_conv2d(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Tensor:
    """Compute ``F.conv2d``, whose arguments these are."""
    if weight.shape[2:] == (1, 1) and not any(padding) and _is_guarded(x):
        # What the stride passes over is left out first; then there is no stride.
        x, stride = x[..., :: stride[0], :: stride[1]], (1, 1)
    return F.conv2d(x, weight, bias, stride, padding, dilation, groups)


def strided_conv3d(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Tensor:
    """Compute ``F.conv3d``, whose arguments these are."""
    if _is_guarded(x):
        depth, height = weight.shape[2] == 1, max(weight.shape[2:4]) == 1
        steps = stride[0] if depth else 1, stride[1] if height else 1
        if max(steps) > 1:
            # What a stride across the kernel passes over is left out first; then there is no such stride.
            pads = padding[0] if depth else 0, padding[1] if height else 0
            x = F.pad(x, (0, 0, pads[1], pads[1], pads[0], pads[0])) if any(pads) else x
            x = x[..., :: steps[0], :: steps[1], :]
            stride = (stride[0] // steps[0], stride[1] // steps[1], stride[2])
            padding = (padding[0] - pads[0], padding[1] - pads[1], padding[2])
        if x.requires_grad and torch.is_grad_enabled() and _in_16_bits(x):
            x = _without_unread_ends(x, weight.shape[2:], stride, padding, dilation)
    return F.conv3d(x, weight, bias, stride, padding, dilation, groups)


def _in_16_bits(x: Tensor) -> bool:
    return x.dtype in HALVES or torch.is_autocast_enabled(x.device.type)


def _without_unread_ends(x: Tensor, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Tensor:
    """Crop the end of each axis that no window reads; autograd fills its gradient with zeros."""
    for axis, (k, step, pad, tap) in enumerate(zip(kernel, stride, padding, dilation, strict=True), start=-3):
        size, window = x.shape[axis], span(k, tap)
        read = (size + 2 * pad - window) // step * step + window - pad
        if read < size:
            x = x.narrow(axis, 0, read)
    return x
