"""Memory format: channels last, with which most convolutions are faster."""

import torch
from torch import nn

MEMORY_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
"""Memory format by number of dimensions; other tensors keep theirs."""


def channels_last_(model: nn.Module) -> None:
    """Set the memory format of every tensor by its rank; torch's own method takes one rank for a whole network.

    A 1×1 kernel fits either format, but its strides name one: after a copy it is that of its gradient, or else buckets
    of gradients would be copied at every step and PyTorch would warn of it.
    """
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.ndim in MEMORY_FORMATS:
            tensor.data = tensor.data.clone(memory_format=MEMORY_FORMATS[tensor.ndim])
