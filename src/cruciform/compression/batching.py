"""How many inputs a network is run on at once, so that gradients of all of its layers fit into memory."""

from typing import Any

import torch
from torch import Tensor, nn

BYTES = 1e9
"""Of activations and their gradients."""


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
