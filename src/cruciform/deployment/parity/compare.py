"""Compare the outputs of an engine with PyTorch's, on different inputs and at several batch sizes.

Errors are fractions of the **range over inputs**: the largest difference of any one output element between two
inputs. The range over classes is no substitute: a network that returns the same output for every input has one too,
and any engine would pass.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

from cruciform.deployment.targets.target import EXACT, Engine, Target
from cruciform.errors import DeployError, first_line

INPUTS = 8
"""Inputs at each batch size, at least one batch."""
ROUNDING = {"f32": 1e-6}
"""Rounding error of a network as a fraction of its largest output, by precision; ``COARSE`` for all others."""
COARSE = 1e-2


@dataclass(frozen=True)
class Comparison:
    """The largest difference between an engine and PyTorch.

    Attributes:
        error: The largest difference of an output, as a fraction of ``scale``.
        scale: The range over inputs; where it is not resolved, the range of all outputs.
        resolved: Whether the range over inputs is large enough to check the tolerance despite rounding.
        batches: The batch sizes that were compared.
        refused: Batch sizes that the network or engine does not support, with the error.
        expected: PyTorch's outputs.
    """

    error: float
    scale: float
    resolved: bool
    batches: tuple[int, ...]
    refused: dict[int, str]
    expected: NDArray[Any]


def compare(model: nn.Module, engine: Engine, images: NDArray[Any], *, batch: int, target: Target,
            name: str) -> Comparison:  # fmt: skip
    """Compare an engine with PyTorch at batch sizes 1, the given one, and a third.

    Args:
        model: The network, in evaluation mode.
        engine: The engine.
        images: Different inputs; all are run at the given batch size, a few at the others.
        batch: The given batch size.
        target: The engine's target, for its tolerance.
        name: The name of the engine, for errors.

    Raises:
        DeployError: The outputs differ, or the network's own outputs depend on the batch size.
    """
    third = batch + 1 if batch > 1 else 3
    sizes = {batch, 1, min(2, third), third} if batch == 1 else {batch, 1, third}
    images = np.resize(images, (max(len(images), third), *images.shape[1:]))
    expected = run_in_batches(pytorch(model), images, batch)
    if not np.isfinite(expected).all():
        raise DeployError(f"{_title(model)} returns NaN or Inf, so that no engine can be compared with it")
    spread, largest = range_over_inputs(expected), float(np.abs(expected).max(initial=0.0))
    resolved = spread * target.tolerance > ROUNDING.get(target.precision, COARSE) * largest
    # If outputs do not depend on the input, large errors are still found.
    scale = spread if resolved else float(np.ptp(expected)) or largest or 1.0
    errors: dict[int, float] = {}
    refused: dict[int, str] = {}
    for size in sorted(sizes, key=lambda size: (size != batch, size)):
        some = images if size == batch else images[: max(INPUTS, size)]
        try:
            own, found = (run_in_batches(run, some, size) for run in (pytorch(model), engine))
        except Exception as error:  # engines raise any exception
            if size == batch:
                raise DeployError(f"{name} does not run at batch size {size}: {first_line(error)}") from error
            refused[size] = first_line(error)
            continue
        change = largest_difference(own, expected) / scale
        if not change <= EXACT:
            raise _depends_on_batch(model, some, (size, batch), change)
        errors[size] = largest_difference(found, expected) / scale
        if not errors[size] <= target.tolerance:  # NaN is not
            raise DeployError(
                f"{name} differs from PyTorch by {errors[size]:.1e} of the outputs' range over inputs at batch size "
                f"{size}; {target.tolerance:.0e} is allowed. Deploy to another target"
            )
    return Comparison(max(errors.values()), scale, resolved, tuple(sorted(errors)), refused, expected)


def check_inputs(count: int, size: tuple[int, ...], *, seed: int = 1) -> NDArray[Any]:
    """Return inputs that a network distinguishes: noise at every scale, from single pixels to whole images.

    Per-pixel noise alone looks much the same to a network that pools.
    """
    generator = torch.Generator().manual_seed(seed)
    made = []
    for number in range(count):
        coarse = [max(1, length // 4 ** (number % 4)) for length in size[1:]]
        drawn = torch.randn(1, size[0], *coarse, generator=generator)
        made.append(F.interpolate(drawn, size=size[1:]) if coarse else drawn)
    images: NDArray[Any] = torch.cat(made).numpy()
    return images


def pytorch(model: nn.Module) -> Engine:
    """Return a network in PyTorch as an engine."""

    def run(images: NDArray[Any]) -> NDArray[Any]:
        with torch.no_grad():
            outputs: NDArray[Any] = model(torch.from_numpy(images)).numpy()
        return outputs

    return run


def run_in_batches(run: Engine, images: NDArray[Any], size: int) -> NDArray[Any]:
    """Return the outputs of all full batches; images are copied because some networks overwrite them."""
    whole = len(images) - len(images) % size
    return np.concatenate([run(images[first : first + size].copy()) for first in range(0, whole, size)])


def range_over_inputs(outputs: NDArray[Any]) -> float:
    """Return the largest range of an output element over inputs."""
    return float(np.ptp(outputs, axis=0).max(initial=0.0))


def largest_difference(found: NDArray[Any], expected: NDArray[Any]) -> float:
    """Return the largest absolute difference over the inputs that both have."""
    if found.shape[1:] != expected.shape[1:]:
        raise DeployError(f"the engine's output has shape {found.shape[1:]}, PyTorch's {expected.shape[1:]}")
    both = min(len(found), len(expected))
    return float(np.abs(found[:both] - expected[:both]).max(initial=0.0))


def _depends_on_batch(model: nn.Module, images: NDArray[Any], sizes: tuple[int, int], change: float) -> DeployError:
    once, again = (run_in_batches(pytorch(model), images, sizes[0]) for _ in range(2))
    if not np.array_equal(once, again):
        return DeployError(
            f"{_title(model)} returns different outputs for the same images each time, so that no engine can be "
            "compared with it; remove the randomness from its evaluation mode"
        )
    return DeployError(
        f"the outputs of {_title(model)} depend on the batch size: in PyTorch itself those at {sizes[0]} and at "
        f"{sizes[1]} differ by {change:.2g} of their range over inputs, but an artifact must run at any batch size; "
        "rewrite the code that reads x.shape[0] or other images of the batch"
    )


def _title(model: nn.Module) -> str:
    return f"this network ({type(model).__name__})"
