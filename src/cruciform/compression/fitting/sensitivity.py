"""How much errors of a layer's outputs count: what they do to the outputs of the whole network, by gradients.

Symbols: ``e`` an error of a layer's outputs at one position, ``g`` the gradient there of a random question to the
network's outputs. Then ``G = E[Σ g gᵀ]``, summed over positions, and ``E[eᵀ G e]`` is the rise of the network's output
error by that layer alone, to first order and as if errors of different positions were independent.

The question is drawn anew for every input, and needs no labels. For class scores it is the log-probability of a class
that is drawn from the network's own probabilities, so that G is a Fisher matrix and the rise twice a
Kullback–Leibler divergence. For all other outputs it is their product with random signs: the rise is the mean square
error of an output.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from cruciform.compression.fitting.layer_moments import Batches

POSITIONS = 64
"""Of a layer's outputs for one input, evenly spaced, that gradients are taken of; they stand for all."""


def measure_sensitivity(
    model: nn.Module, layers: Sequence[str], batches: Batches, *, seed: int = 0
) -> dict[str, Tensor]:
    """Return G, (d, d), of each layer; none of a layer that no gradient reaches.

    Args:
        model: The trained network, in evaluation mode.
        layers: Their names.
        batches: The calibration inputs.
        seed: Of the random questions.
    """
    generator = torch.Generator().manual_seed(seed)
    sums: dict[str, Tensor] = {}
    count = 0
    with _kept_gradients(model, layers) as gradients, torch.enable_grad():
        for images in batches():
            gradients.clear()
            outputs = [output for output in output_tensors(model(images.detach())) if output.requires_grad]
            torch.autograd.backward([_question(output, generator) for output in outputs])
            count += len(images)
            for name, parts in gradients.items():
                for part in parts:
                    whole = part.flatten(2)
                    step = max(1, whole.shape[2] // POSITIONS)
                    rows = whole[:, :, ::step].movedim(1, -1).reshape(-1, whole.shape[1]).cpu()
                    counted = whole.shape[2] / len(range(0, whole.shape[2], step))
                    sums[name] = sums.get(name, 0.0) + counted * (rows.T @ rows).double()
    return {name: total / count for name, total in sums.items()}


def _question(output: Tensor, generator: torch.Generator) -> Tensor:
    """Return one number of a network's outputs, summed over the batch."""
    if is_class_scores(output):
        logarithms = output.float().log_softmax(1)
        drawn = torch.multinomial(logarithms.detach().exp().cpu(), 1, generator=generator).to(output.device)
        return logarithms.gather(1, drawn).sum()
    signs = torch.randint(0, 2, output.shape, generator=generator).to(output) * 2 - 1
    asked: Tensor = (output * signs).sum() / prod(output.shape[1:]) ** 0.5
    return asked


def is_class_scores(output: Tensor) -> bool:
    """Return whether an output has a score for each class of each input."""
    return output.ndim == 2 and output.shape[1] > 1


def output_tensors(output: Any) -> list[Tensor]:
    """Return all float tensors of a network's output, whatever holds them."""
    if isinstance(output, Tensor):
        return [output] if output.is_floating_point() else []
    items = output.values() if isinstance(output, Mapping) else output if isinstance(output, list | tuple) else ()
    return [tensor for item in items for tensor in output_tensors(item)]


@contextmanager
def _kept_gradients(model: nn.Module, layers: Sequence[str]) -> Iterator[dict[str, list[Tensor]]]:
    """Keep the gradients by the outputs of some layers, of every call."""
    kept: dict[str, list[Tensor]] = {}

    def keep(name: str) -> Callable[..., Tensor]:
        def hook(module: nn.Module, args: Any, output: Tensor) -> Tensor:
            # A copy: what comes after may write into it, which no leaf allows.
            asked = output if output.requires_grad else output.requires_grad_().clone()
            asked.register_hook(lambda gradient: kept.setdefault(name, []).append(gradient.detach()))
            return asked

        return hook

    handles = [model.get_submodule(name).register_forward_hook(keep(name)) for name in layers]
    needed = {parameter: parameter.requires_grad for parameter in model.parameters()}
    try:
        for parameter in needed:
            parameter.requires_grad_(False)
        yield kept
    finally:
        for parameter, before in needed.items():
            parameter.requires_grad_(before)
        for handle in handles:
            handle.remove()
