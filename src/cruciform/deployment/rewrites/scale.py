"""Multiplications by constants: folded into the convolution before them, or convolutions themselves."""

from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from cruciform.deployment.rewrites.graph import (
    CONVOLUTIONS,
    CONVOLVE,
    aten,
    channels_of,
    constant,
    function_of,
    is_constant,
    new_constant,
    put_in_place,
    readers_of,
    tidied,
)

RESHAPES = frozenset({aten.unsqueeze.default, aten.view.default, aten.reshape.default})


def fold_affine_(graph: GraphModule, node: Node, source: Any, scale: Tensor, shift: Tensor | None) -> None:
    """Fold a scale and shift per channel, which a node computes of its source, into the source.

    Nothing happens unless that is a convolution with a constant kernel, and the node its only reader.
    """
    if not isinstance(source, Node) or source.target not in CONVOLUTIONS or len(source.users) != 1:
        return
    kernel_of = source.args[1]
    if not is_constant(kernel_of):  # it is computed, by a weight norm for instance
        return
    weight = constant(graph, kernel_of)
    bias = constant(graph, source.args[2]) if len(source.args) > 2 and source.args[2] is not None else None
    offset = bias * scale if bias is not None else None
    if shift is not None:
        offset = shift if offset is None else offset + shift
    # Keep the name, because layers are identified by the names of their weights.
    name = str(kernel_of.target)
    alone = readers_of(graph, name) <= 1  # a layer that is called twice needs its original weight for the other call
    name = name if alone else f"{name}_{source.name}"
    with graph.graph.inserting_before(source):
        kernel = new_constant(graph, name, weight * scale.reshape(-1, *(1,) * (weight.ndim - 1)), replace=alone)
        added = None if offset is None else new_constant(graph, f"{source.name}_offset", offset, replace=True)
    source.args = (source.args[0], kernel, added, *source.args[3:])
    node.replace_all_uses_with(source)
    graph.graph.erase_node(node)


def fold_scale_(graph: GraphModule, node: Node) -> None:
    """Fold a multiplication by constants into the convolution before it, if that has no other reader."""
    found = _scaled(graph, node)
    if found is not None:
        fold_affine_(graph, node, *found, None)


def scales_as_convolutions_(graph: GraphModule) -> bool:
    """Rewrite multiplications of feature maps by constants as 1×1 convolutions of each channel, in place.

    ONNX Runtime keeps feature maps in blocks of channels between convolutions, poolings and additions. Any other
    operation costs two copies, and more where a residual network adds and concatenates what it returns.

    Returns:
        Whether there were any.
    """
    found = False
    for node in list(graph.graph.nodes):
        scaled = _scaled(graph, node)
        if scaled is None:
            continue
        source, scale = scaled
        rank, channels = node.meta["val"].ndim - 2, channels_of(node)
        with graph.graph.inserting_before(node):
            kernel = new_constant(graph, f"{node.name}_kernel", scale.reshape(channels, *(1,) * (rank + 1)))
            made = graph.graph.call_function(
                CONVOLVE[rank + 2], (source, kernel, None, [1] * rank, [0] * rank, [1] * rank, channels)
            )
        put_in_place(graph, node, made)
        found = True
    tidied(graph)
    return found


def _scaled(graph: GraphModule, node: Node) -> tuple[Node, Tensor] | None:
    """Return feature maps and the constant of each channel that a node multiplies; None: it does something else."""
    if node.target is not aten.mul.Tensor:
        return None
    source, factor = node.args
    value = _value_of(graph, source)
    if value is None:
        value = _value_of(graph, factor)
    else:
        source = factor
    if value is None or not isinstance(source, Node) or source.meta["val"].shape != node.meta["val"].shape:
        return None
    shape = node.meta["val"].shape
    axes = (1,) * (len(shape) - value.ndim) + tuple(value.shape)
    if len(shape) not in CONVOLVE or axes[0] != 1 or set(axes[2:]) != {1} or not value.is_floating_point():
        return None
    return source, value.reshape(-1).expand(shape[1]).clone()


def _value_of(graph: GraphModule, given: Any) -> Tensor | None:
    """Return a number, or a constant in whatever shape, as a tensor; None: it is computed."""
    if isinstance(given, int | float):
        return torch.tensor(float(given))
    if is_constant(given):
        return constant(graph, given)
    if isinstance(given, Node) and given.target in RESHAPES:
        inner = _value_of(graph, given.args[0])
        return None if inner is None else function_of(given)(inner, *given.args[1:])
    return None
