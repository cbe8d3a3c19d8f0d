"""Does an engine compute what PyTorch does? Asked of inputs that differ, at several batch sizes.

An error is a fraction of the **range over inputs**: the widest difference that any one output element has between two
inputs. The range over classes would not do: a network that gives every input the same answer has one too, and there
any engine would pass.
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
"""Inputs at each batch size; one batch at least."""
ROUNDING = {"f32": 1e-6}
"""Rounding errors of a whole network as a fraction of its largest output, by precision; ``COARSE`` for others."""
COARSE = 1e-2


@dataclass(frozen=True)
class Comparison:
    """How closely an engine was seen to compute what PyTorch does.

    Attributes:
        error: The largest difference of an output, as a fraction of ``scale``.
        scale: The range over inputs; where it is not resolved, that of all outputs.
        resolved: Whether the range over inputs is wide enough for the tolerance, given how numbers are rounded.
        batches: The batch sizes that were compared.
        refused: Batch sizes that the network or the engine does not take, and why.
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
    """Compares an engine with PyTorch at batch sizes 1, the given one, and a third.

    Args:
        model: The network, in evaluation mode.
        engine: What shall compute the same.
        images: Inputs that differ; all of them are run at the given batch size, a few at the others.
        batch: The given size.
        target: Says how exactly it computes.
        name: Of the engine.

    Raises:
        DeployError: The engine computes something else, or what the network itself computes depends on the batch size.
    """
    third = batch + 1 if batch > 1 else 3
    sizes = {batch, 1, min(2, third), third} if batch == 1 else {batch, 1, third}
    images = np.resize(images, (max(len(images), third), *images.shape[1:]))
    expected = run_in_batches(pytorch(model), images, batch)
    if not np.isfinite(expected).all():
        raise DeployError(f"{_title(model)} returns NaN or Inf, so that no engine can be compared with it")
    spread, largest = range_over_inputs(expected), float(np.abs(expected).max(initial=0.0))
    resolved = spread * target.tolerance > ROUNDING.get(target.precision, COARSE) * largest
    # Where inputs make no difference, what is far off is still seen.
    scale = spread if resolved else float(np.ptp(expected)) or largest or 1.0
    errors: dict[int, float] = {}
    refused: dict[int, str] = {}
    for size in sorted(sizes, key=lambda size: (size != batch, size)):
        some = images if size == batch else images[: max(INPUTS, size)]
        try:
            own, found = (run_in_batches(run, some, size) for run in (pytorch(model), engine))
        except Exception as error:  # others raise whatever they meet
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
    """Returns inputs that a network tells apart: noise of every grain, from single pixels to whole images.

    Noise of single pixels alone is much the same to a network that pools it.
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
    """Returns what runs a network in PyTorch, as an engine."""

    def run(images: NDArray[Any]) -> NDArray[Any]:
        with torch.no_grad():
            outputs: NDArray[Any] = model(torch.from_numpy(images)).numpy()
        return outputs

    return run


def run_in_batches(run: Engine, images: NDArray[Any], size: int) -> NDArray[Any]:
    """Returns the outputs for all images that fill batches of a size, from copies: some networks write over them."""
    whole = len(images) - len(images) % size
    return np.concatenate([run(images[first : first + size].copy()) for first in range(0, whole, size)])


def range_over_inputs(outputs: NDArray[Any]) -> float:
    """Returns the widest range that an output element has over inputs."""
    return float(np.ptp(outputs, axis=0).max(initial=0.0))


def largest_difference(found: NDArray[Any], expected: NDArray[Any]) -> float:
    """Returns the largest absolute difference, over as many inputs as there are of both."""
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
