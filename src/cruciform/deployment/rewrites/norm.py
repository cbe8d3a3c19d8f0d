"""Fold batch norm, in evaluation mode a scale and shift per channel, into the convolution before it."""

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from cruciform.deployment.rewrites.graph import (
    MAX_POOLINGS,
    NORM,
    channels_of,
    constant,
    new_constant,
    parts_of,
    put_in_place,
)
from cruciform.deployment.rewrites.scale import fold_affine_


def plain_norm(graph: GraphModule, node: Node) -> Node:
    """Rewrite a batch norm as an operation with one output; the others are for training."""
    x, weight, bias, mean, variance, momentum, epsilon = node.args
    with graph.graph.inserting_before(node):
        norm = graph.graph.call_function(NORM, (x, weight, bias, mean, variance, False, momentum, epsilon, False))
    for reader in list(node.users):
        put_in_place(graph, reader, norm)
    graph.graph.erase_node(node)
    return norm


def before_pooling_(graph: GraphModule, node: Node) -> Node:
    """Move a batch norm before the max pooling that it reads, where it can be folded; return it.

    Positive scales preserve the maximum.
    """
    pool = node.args[0]
    if not isinstance(pool, Node) or pool.target not in MAX_POOLINGS or len(pool.users) != 1:
        return node
    source = pool.args[0]
    if not isinstance(source, Node) or float(_scale_and_shift(graph, node)[0].min()) <= 0:
        return node
    with graph.graph.inserting_before(pool):
        norm = graph.graph.call_function(NORM, (source, *node.args[1:]))
    norm.meta["val"] = source.meta["val"]
    pool.args = (norm, *pool.args[1:])
    node.replace_all_uses_with(pool)
    graph.graph.erase_node(node)
    return norm


def fold_norm_(graph: GraphModule, node: Node) -> None:
    """Fold a batch norm into the convolution before it, if that has no other reader."""
    fold_affine_(graph, node, node.args[0], *_scale_and_shift(graph, node))


def norms_of_parts(graph: GraphModule, node: Node) -> list[Node]:
    """Return a batch norm of each part of the concatenation that a batch norm reads."""
    parts = parts_of(node.args[0])
    widths = [channels_of(part) for part in parts]
    made = []
    for number, part in enumerate(parts):
        constants = [
            None
            if value is None
            else new_constant(graph, f"{node.name}_{number}_{index}", constant(graph, value).split(widths)[number])
            for index, value in enumerate(node.args[1:5])
        ]
        made.append(graph.graph.call_function(NORM, (part, *constants, *node.args[5:])))
        made[-1].meta["val"] = part.meta["val"]
    return made


def _scale_and_shift(graph: GraphModule, node: Node) -> tuple[Tensor, Tensor]:
    mean, variance = (constant(graph, node.args[index]) for index in (3, 4))
    scale = torch.rsqrt(variance + float(str(node.args[7])))
    if node.args[1] is not None:
        scale = scale * constant(graph, node.args[1])
    shift = -mean * scale
    return scale, shift if node.args[2] is None else shift + constant(graph, node.args[2])
