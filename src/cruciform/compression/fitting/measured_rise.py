"""What replacing one layer really does to the outputs of a network, by running it with the replacement.

In the units of ``sensitivity``: twice the Kullback–Leibler divergence for class scores, the mean square error else.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from cruciform.compression.fitting.layer_moments import Batches
from cruciform.compression.fitting.prefix import Prefix
from cruciform.compression.fitting.sensitivity import is_class_scores, output_tensors


class Probe(NamedTuple):
    """Inputs, and the network's own outputs for them."""

    images: Tensor
    outputs: list[Tensor]


@torch.no_grad()
def take_probes(model: nn.Module, batches: Batches, count: int) -> list[Probe]:
    """Return the first inputs, at most ``count``, with the network's outputs."""
    probes: list[Probe] = []
    for images in batches():
        taken = images[:count]
        probes.append(Probe(taken, output_tensors(model(taken))))
        count -= len(taken)
        if count <= 0:
            break
    return probes


def measure_rise(prefix: Prefix, name: str, kernel: Tensor, bias: Tensor, probes: Sequence[Probe]) -> float:
    """Return the rise of the network's output error with another kernel and bias in one convolution.

    Args:
        prefix: Of the trained network, for these probes.
        name: The convolution.
        kernel: In the place of its weight.
        bias: In the place of its bias; also where it has none, because a norm after it would follow.
        probes: What it is run on.
    """
    with replaced(prefix.model.get_submodule(name), kernel, bias):
        return output_error(prefix, name, probes)


def output_error(prefix: Prefix, layer: str, probes: Sequence[Probe]) -> float:
    """Return how far the outputs of a network are from those of the original.

    Args:
        prefix: Of the network, for these probes.
        layer: What has ended before it starts gives what it gave the last time.
        probes: What the network is run on.
    """
    model = prefix.model
    passes = prefix.over(layer, lambda images: output_tensors(model(images)), [images for images, _ in probes])
    total = sum(
        len(images) * _difference(outputs, found) for (_, outputs), (images, found) in zip(probes, passes, strict=True)
    )
    return total / sum(len(images) for images, _ in probes)


@contextmanager
@torch.no_grad()
def replaced(layer: nn.Module, kernel: Tensor, bias: Tensor) -> Iterator[None]:
    """Put another kernel and bias into a convolution, and its own back after.

    Args:
        layer: The convolution.
        kernel: In the place of its weight.
        bias: In the place of its bias, also where it has none.
    """
    weight = layer.get_parameter("weight")
    own = getattr(layer, "bias", None)
    shift = bias.to(weight) - (0.0 if own is None else own.detach())

    def add_shift(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        return output + shift.reshape(-1, *[1] * (output.ndim - 2))

    trained = weight.detach().clone()
    handle = layer.register_forward_hook(add_shift)
    try:
        weight.copy_(kernel)
        yield
    finally:
        weight.copy_(trained)
        handle.remove()


def _difference(before: Sequence[Tensor], after: Sequence[Tensor]) -> float:
    return sum(_divergence(x, y) for x, y in zip(before, after, strict=True))


def _divergence(before: Tensor, after: Tensor) -> float:
    if is_class_scores(before):
        # In float64: the divergence of nearly equal scores is a small difference of large numbers.
        p, q = before.cpu().double().log_softmax(1), after.cpu().double().log_softmax(1)
        return 2 * float((p.exp() * (p - q)).sum(1).mean())
    return float((before - after).square().mean())
