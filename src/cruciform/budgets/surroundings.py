"""Find the pooling after each convolution, which affects the cost of a plan.

The pooling can run before the filter groups of a layer are concatenated, which then costs a quarter or an eighth: a
layer that is timed without its pooling looks more expensive than it is.
"""

from typing import NamedTuple

from torch import nn
from torch.fx import Node

from cruciform.deployment.rewrites.capture import capture
from cruciform.deployment.rewrites.graph import CHANNELWISE, CONVOLUTIONS, MAX_POOLINGS

Extents = tuple[int, ...]


class Pooling(NamedTuple):
    """A max pooling.

    Attributes:
        kernel: Its kernel size.
        stride: Its stride.
        padding: Its padding.
    """

    kernel: Extents
    stride: Extents
    padding: Extents


def find_poolings(model: nn.Module, input_size: tuple[int, ...]) -> dict[str, Pooling]:
    """Return the max pooling after each convolution, across activations and norms."""
    found: dict[str, Pooling] = {}
    for node in capture(model, input_size).graph.nodes:
        if node.target in CONVOLUTIONS:
            pooling = _pooling_behind(node)
            if pooling is not None:
                found[str(node.args[1].target).rpartition(".")[0]] = pooling
    return found


def _pooling_behind(node: Node) -> Pooling | None:
    while len(node.users) == 1:
        node = next(iter(node.users))
        if node.target in MAX_POOLINGS:
            rank = node.meta["val"].ndim - 2
            kernel = _extents(node, 1, rank)
            return Pooling(kernel, _extents(node, 2, rank, kernel), _extents(node, 3, rank, (0,) * rank))
        if node.target not in CHANNELWISE:
            return None
    return None


def _extents(node: Node, place: int, rank: int, default: Extents = ()) -> Extents:
    given = node.args[place] if len(node.args) > place else None
    numbers = tuple(int(str(number)) for number in given) if isinstance(given, list | tuple) else ()
    return (numbers * rank if len(numbers) == 1 else numbers) or default
