"""Re-estimates the running statistics of batch norms: a compressed network delivers other means and variances."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from cruciform.measure.state_guard import in_mode


def reestimate_norms_(model: nn.Module, batches: Iterable[Tensor]) -> int:
    """Replace the running statistics of all batch norms by those over some inputs; return how many norms there are.

    Args:
        model: The network; its mode, and whether norms learn, stay what they are.
        batches: Inputs, more than one value for each channel of each batch.
    """
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm) and module.track_running_stats]
    if not norms:
        return 0
    momenta = [norm.momentum for norm in norms]
    with torch.no_grad(), in_mode(model, training=False):
        try:
            for norm in norms:
                norm.reset_running_stats()
                norm.momentum = None  # the plain mean over all batches
                norm.training = True
            for images in batches:
                model(images)
        finally:
            for norm, momentum in zip(norms, momenta, strict=True):
                norm.momentum = momentum
    return len(norms)
