"""Moves the running statistics of batch norms: a compressed network delivers other means and variances.

Statistics of a few hundred calibration inputs are not those of training, of more images, which were augmented. So they
are moved by what the compression changed, measured on the same inputs with the original and the compressed network: an
unchanged network keeps its norms exactly.
"""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from cruciform.compression.fitting.layer_moments import Batches
from cruciform.measure.state_guard import in_mode

HALFWAY = 0.5
"""How far variances follow, as an exponent. Least squares leaves out what it can't predict, so outputs vary less: 0 has
the least error there, 1 the same spread for what comes after. Between them the network's outputs are nearest."""


class Statistics(NamedTuple):
    """Of the inputs of a norm, by channel."""

    mean: Tensor
    variance: Tensor


def norm_after(model: nn.Module, name: str) -> str | None:
    """Return the batch norm that a convolution's outputs go to, by its name; None where there is none."""
    names = [other for other, module in model.named_modules() if not list(module.children())]
    after = names[names.index(name) + 1 : names.index(name) + 2]
    norm = model.get_submodule(after[0]) if after else None
    if not isinstance(norm, _BatchNorm) or not norm.track_running_stats:
        return None
    return after[0] if norm.num_features == model.get_submodule(name).out_channels else None


@torch.no_grad()
def shift_norm_(norm: nn.Module, learnt: nn.Module, bias: Tensor) -> None:
    """Let a norm take up the bias of the convolution before it.

    Args:
        norm: Of the compressed network.
        learnt: Of the original.
        bias: What the convolution would add.
    """
    mean = learnt.get_buffer("running_mean")
    norm.get_buffer("running_mean").copy_(mean - bias.to(mean))


def move_norms_(compressed: nn.Module, original: nn.Module, batches: Batches) -> int:
    """Move the running statistics of batch norms by what the compression changed; return how many norms there are.

    Args:
        compressed: The network; norms that the original does not have get the statistics of the inputs.
        original: What it was made of.
        batches: Inputs, more than one value for each channel of each batch.
    """
    norms = _norms(compressed)
    if not norms:
        return 0
    own = _norms(original)
    before, after = measure_statistics(original, batches()), measure_statistics(compressed, batches())
    for name, norm in norms.items():
        mean, variance = after[name]
        if name in before:
            learnt = _statistics(own[name])
            mean = learnt.mean + mean - before[name].mean
            variance = learnt.variance * (variance / before[name].variance.clamp_min(norm.eps)) ** HALFWAY
        norm.get_buffer("running_mean").copy_(mean)
        norm.get_buffer("running_var").copy_(variance)
    return len(norms)


def measure_statistics(model: nn.Module, batches: Iterable[Tensor]) -> dict[str, Statistics]:
    """Return the statistics that the batch norms of a network see, by name, with each batch normalized by its own.

    Args:
        model: The network; it stays what it is.
        batches: Inputs.
    """
    norms = _norms(model)
    learnt = {name: {key: value.clone() for key, value in norm.state_dict().items()} for name, norm in norms.items()}
    with torch.no_grad(), in_mode(model, training=False):
        try:
            for norm in norms.values():
                norm.reset_running_stats()
                norm.momentum = None  # the plain mean over all batches
                norm.training = True
            for images in batches:
                model(images)
            return {name: _statistics(norm) for name, norm in norms.items()}
        finally:
            for name, norm in norms.items():
                norm.load_state_dict(learnt[name])


def _statistics(norm: nn.Module) -> Statistics:
    return Statistics(norm.get_buffer("running_mean").clone(), norm.get_buffer("running_var").clone())


def _norms(model: nn.Module) -> dict[str, _BatchNorm]:
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, _BatchNorm) and module.track_running_stats
    }
