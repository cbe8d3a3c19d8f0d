"""Fold batch norm, in evaluation mode a scale and shift per channel, into the convolution before it."""

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from cruciform.deployment.rewrites.graph import (
    CONVOLUTIONS,
    MAX_POOLINGS,
    NORM,
    channels_of,
    constant,
    is_constant,
    new_constant,
    parts_of,
    put_in_place,
    readers_of,
)


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
    source = node.args[0]
    if not isinstance(source, Node) or source.target not in CONVOLUTIONS or len(source.users) != 1:
        return
    kernel_of = source.args[1]
    if not is_constant(kernel_of):  # it is computed, by a weight norm for instance
        return
    scale, shift = _scale_and_shift(graph, node)
    weight = constant(graph, kernel_of)
    has_bias = len(source.args) > 2 and source.args[2] is not None
    bias = constant(graph, source.args[2]) if has_bias else torch.zeros_like(shift)
    # Keep the name, because layers are identified by the names of their weights.
    name = str(kernel_of.target)
    alone = readers_of(graph, name) <= 1  # a layer that is called twice needs its original weight for the other call
    name = name if alone else f"{name}_{source.name}"
    with graph.graph.inserting_before(source):
        kernel = new_constant(graph, name, weight * scale.reshape(-1, *(1,) * (weight.ndim - 1)), replace=alone)
        offset = new_constant(graph, f"{source.name}_offset", bias * scale + shift)
    source.args = (source.args[0], kernel, offset, *source.args[3:])
    node.replace_all_uses_with(source)
    graph.graph.erase_node(node)


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
