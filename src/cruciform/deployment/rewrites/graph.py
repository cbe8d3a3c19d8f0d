"""Export a network as a graph of tensor operations, and helpers for rewriting it."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from cruciform.errors import DeployError, first_line

aten = torch.ops.aten

CONVOLVE = {3: aten.conv1d.default, 4: aten.conv2d.default, 5: aten.conv3d.default}
"""Convolutions by the number of axes that they read: images, channels and space."""
CONVOLUTIONS = frozenset(CONVOLVE.values())
NORM = aten.batch_norm.default
INSTANCE_NORM = aten.instance_norm.default
CAT = aten.cat.default
MAX_POOLINGS = frozenset({aten.max_pool2d.default, aten.max_pool3d.default})

CHANNELWISE = frozenset({
    aten.relu.default, aten.gelu.default, aten.silu.default, aten.leaky_relu.default, aten.hardtanh.default,
    aten.hardswish.default, aten.hardsigmoid.default, aten.sigmoid.default, aten.tanh.default, aten.elu.default,
    aten.clone.default, aten.dropout.default, aten.max_pool2d.default, aten.max_pool3d.default,
    aten.avg_pool2d.default, aten.avg_pool3d.default, aten.adaptive_avg_pool2d.default,
    aten.adaptive_avg_pool3d.default,
})  # fmt: skip
"""Channel-wise operations whose first argument is their input."""


def is_norm(node: Node) -> bool:
    """Return whether a node is a batch norm."""
    return node.target is NORM


def is_channelwise(node: Node) -> bool:
    """Return whether a node is a channel-wise operation."""
    # An instance norm is, if it has no weights and no running statistics.
    return node.target in CHANNELWISE or (node.target is INSTANCE_NORM and not any(node.args[1:5]))


@contextmanager
def without_warnings() -> Iterator[None]:
    """Suppress warnings of torch's exporters."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def export(model: nn.Module, input_size: tuple[int, ...], *, batch: int = 2, exactly: bool = False) -> ExportedProgram:
    """Export a network with torch.export.

    Args:
        model: The network.
        input_size: Channels and spatial size of one image.
        batch: The batch size to trace with. It stays dynamic, except for 1, which torch.export makes static.
        exactly: Whether to make the batch size static.
    """
    example = torch.zeros(batch, *input_size)
    free = None if exactly or batch == 1 else ({0: torch.export.Dim.DYNAMIC},)
    try:
        with torch.no_grad(), without_warnings():
            return torch.export.export(model, (example,), dynamic_shapes=free, strict=False)
    except Exception as error:  # it raises any exception of the network's code
        raise DeployError(f"torch.export can't trace this network: {first_line(error)}") from error


def is_constant(node: Any) -> TypeGuard[Node]:
    """Return whether a node is a parameter or buffer, not a computed value."""
    return isinstance(node, Node) and node.op == "get_attr"


def constant(graph: GraphModule, node: Any) -> Tensor:
    """Return the tensor of a parameter or buffer node."""
    value: Any = graph
    for name in str(node.target).split("."):
        value = getattr(value, name)
    if not isinstance(value, Tensor):
        raise DeployError(f"{node.target} is not a tensor")
    return value.detach()


def new_constant(graph: GraphModule, name: str, value: Tensor, *, replace: bool = False) -> Node:
    """Add a tensor to a graph as a buffer; return its node."""
    path, _, last = name.rpartition(".")
    owner = graph.get_submodule(path) if path else graph
    if replace and hasattr(owner, last):
        delattr(owner, last)
    owner.register_buffer(last, value)
    return graph.graph.get_attr(name)


def readers_of(graph: GraphModule, name: str) -> int:
    """Return how many nodes read a parameter or buffer."""
    return sum(len(node.users) for node in graph.graph.nodes if node.op == "get_attr" and node.target == name)


def put_in_place(graph: GraphModule, old: Node, new: Node) -> None:
    """Replace a node by another for all its users."""
    new.meta["val"] = old.meta.get("val")
    old.replace_all_uses_with(new)
    graph.graph.erase_node(old)


def parts_of(node: Any) -> list[Node]:
    """Return the inputs of a concatenation."""
    parts = node.args[0]
    return [part for part in parts if isinstance(part, Node)] if isinstance(parts, list | tuple) else []


def axis_of(node: Node) -> int:
    """Return the axis of a concatenation."""
    axis = node.args[1] if len(node.args) > 1 else 0
    return int(str(axis)) % int(node.meta["val"].ndim)


def channels_of(node: Node) -> int:
    """Return the number of channels of a node's output."""
    return int(node.meta["val"].shape[1])


def function_of(node: Node) -> Callable[..., Any]:
    """Return the function that a node calls."""
    if not callable(node.target):
        raise DeployError(f"{node.target} can't be called")
    return node.target


def tidied(graph: GraphModule) -> GraphModule:
    """Remove dead code from a graph, check and recompile it."""
    graph.graph.eliminate_dead_code()
    graph.graph.lint()
    graph.recompile()
    return graph
