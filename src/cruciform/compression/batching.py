"""The batches that a network is run on: gradients of all of its layers fit into memory; images in channels_last."""

from typing import Any

import torch
from torch import Tensor, nn

from cruciform.compression.fitting.layer_moments import Batches

BYTES = 2e9
"""Of activations and their gradients."""


def batches_of(model: nn.Module, images: Tensor) -> Batches:
    """Return the batches of calibration inputs; images in channels_last where the network allows it.

    Convolutions on a CPU then take a fifth less time. Some networks view their feature maps as this layout forbids.

    Args:
        model: The network, in evaluation mode.
        images: Calibration inputs, (n, channels, …).
    """
    parts = images.split(inputs_at_once(model, images[:1]))
    layout = torch.channels_last if _takes_channels_last(model, images[:1]) else torch.contiguous_format
    return lambda: (part.contiguous(memory_format=layout) for part in parts)


@torch.no_grad()
def _takes_channels_last(model: nn.Module, image: Tensor) -> bool:
    if image.ndim != len("NCHW"):
        return False
    try:
        model(image.contiguous(memory_format=torch.channels_last))
    except RuntimeError:
        return False
    return True


@torch.no_grad()
def inputs_at_once(model: nn.Module, image: Tensor) -> int:
    """Return the batch size whose activations and gradients fit into memory, 1 at least.

    Args:
        model: The network, in evaluation mode.
        image: One input, (1, channels, …).
    """
    values = [image.numel()]

    def count(module: nn.Module, args: Any, output: Any) -> None:
        if isinstance(output, Tensor):
            values.append(output.numel())

    leaves = [module for module in model.modules() if not list(module.children())]
    handles = [module.register_forward_hook(count) for module in leaves]
    try:
        model(image)
    finally:
        for handle in handles:
            handle.remove()
    return max(1, int(BYTES / (2 * 4 * sum(values))))
