"""What replacing one layer really does to the outputs of a network, by running it with the replacement.

In the units of ``sensitivity``: twice the Kullback–Leibler divergence for class scores, the mean square error else.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from cruciform.compression.fitting.sensitivity import is_class_scores, output_tensors


@torch.no_grad()
def measure_rise(
    model: nn.Module, name: str, kernel: Tensor, bias: Tensor, images: Tensor, before: Sequence[Tensor]
) -> float:
    """Return the rise of the network's output error with another kernel and bias in one convolution.

    Args:
        model: The trained network, in evaluation mode.
        name: The convolution.
        kernel: In the place of its weight.
        bias: In the place of its bias; also where it has none, because a norm after it would be re-estimated.
        images: Inputs.
        before: The network's own outputs for them, by ``output_tensors``.
    """
    layer = model.get_submodule(name)
    weight = layer.get_parameter("weight")
    own = getattr(layer, "bias", None)
    shift = bias.to(weight) - (0.0 if own is None else own.detach())

    def add_shift(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        return output + shift.reshape(-1, *[1] * (output.ndim - 2))

    trained = weight.detach().clone()
    handle = layer.register_forward_hook(add_shift)
    try:
        weight.copy_(kernel)
        after = output_tensors(model(images))
    finally:
        weight.copy_(trained)
        handle.remove()
    return sum(_difference(x, y) for x, y in zip(before, after, strict=True))


def _difference(before: Tensor, after: Tensor) -> float:
    if is_class_scores(before):
        p, q = before.float().log_softmax(1), after.float().log_softmax(1)
        return 2 * float((p.exp() * (p - q)).sum(1).mean())
    return float((before - after).square().mean())
