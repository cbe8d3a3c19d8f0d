"""How tensors lie in memory: with their channels last, which most convolutions prefer."""

import torch
from torch import nn

MEMORY_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
"""By the number of a tensor's axes; any other lies as it is."""


def channels_last_(model: nn.Module) -> None:
    """Lay every tensor out by its own rank: torch's own way knows one rank for a whole network.

    A 1×1 kernel lies right in either layout, but its strides say one: copied, they say that of its gradient, or buckets
    of gradients would be copied at every step and PyTorch would warn of it.
    """
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.ndim in MEMORY_FORMATS:
            tensor.data = tensor.data.clone(memory_format=MEMORY_FORMATS[tensor.ndim])
