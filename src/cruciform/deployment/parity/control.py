"""The control of a comparison: would a wrong layer be noticed? The least important weights are randomized."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from cruciform.deployment.parity.compare import largest_difference, run_in_batches

WEAKEST = 3
"""How many weight tensors are randomized, one at a time: those with the least influence, by gradient."""


def sabotage(
    model: nn.Module, images: NDArray[Any], expected: NDArray[Any], batch: int
) -> tuple[str | None, float | None]:
    """Randomize the least important weights, one tensor at a time.

    Args:
        model: The network, in evaluation mode; it is not changed.
        images: Different inputs.
        expected: Its outputs.
        batch: The batch size.

    Returns:
        The weights that changed the outputs least, and the largest change; None where no output depends on weights.
    """
    weights = {name: value for name, value in model.named_parameters() if is_matrix(value)}
    changes: dict[str, float] = {}
    with torch.no_grad():
        for name in _from_the_weakest(model, weights, torch.from_numpy(images[: min(2, batch)].copy()))[:WEAKEST]:
            other = {name: random_like(weights[name])}
            found = run_in_batches(lambda piece, other=other: _run(model, other, piece), images, batch)  # type: ignore[misc]
            change = largest_difference(found, expected)
            changes[name] = change if np.isfinite(change) else np.inf
    weakest = min(changes, key=lambda name: changes[name], default=None)
    return weakest, None if weakest is None else changes[weakest]


def _run(model: nn.Module, weights: Mapping[str, Tensor], images: NDArray[Any]) -> NDArray[Any]:
    outputs: NDArray[Any] = functional_call(model, dict(weights), (torch.from_numpy(images),)).numpy()
    return outputs


def _from_the_weakest(model: nn.Module, weights: Mapping[str, Tensor], images: Tensor) -> list[str]:
    """Return the names of weights in order of their influence, the least first, without unused ones."""
    free = {name: value.detach().clone().requires_grad_() for name, value in weights.items()}
    try:
        with torch.enable_grad():
            outputs = functional_call(model, free, (images,))
            directions = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(0))
            slopes = torch.autograd.grad((outputs * directions).sum(), list(free.values()), allow_unused=True)
    except RuntimeError:  # a network without gradients, or without weights
        return list(free)
    changes = {
        name: float(slope.norm()) * typical_size(weights[name])
        for name, slope in zip(free, slopes, strict=True) if slope is not None
    }  # fmt: skip
    return sorted(changes, key=lambda name: changes[name])


def is_matrix(value: Tensor) -> bool:
    """Return whether a parameter is a weight matrix or kernel, not one number per channel."""
    return value.is_floating_point() and sum(length > 1 for length in value.shape) > 1


def typical_size(weight: Tensor) -> float:
    """Return the RMS of weights; where all are 0, that of usual initial weights."""
    return float(weight.detach().square().mean().sqrt()) or weight[0].numel() ** -0.5


def random_like(weight: Tensor) -> Tensor:
    """Return random weights of the same shape and RMS."""
    drawn = torch.randn(weight.shape, generator=torch.Generator().manual_seed(0), dtype=weight.dtype)
    return drawn * typical_size(weight)
