"""A network as a graph of tensor operations: torch's export, and what all rewrites of such a graph use."""

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

CONVOLUTIONS = frozenset({aten.conv1d.default, aten.conv2d.default, aten.conv3d.default})
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
"""Operations on every channel by itself, whose first argument is what they work on."""


def is_norm(node: Node) -> bool:
    """Returns whether a node is a batch norm."""
    return node.target is NORM


def is_channelwise(node: Node) -> bool:
    """Returns whether a node does the same to every channel by itself."""
    # An instance norm does so without weights and statistics of its own; it has one of each for every channel.
    return node.target in CHANNELWISE or (node.target is INSTANCE_NORM and not any(node.args[1:5]))


@contextmanager
def without_warnings() -> Iterator[None]:
    """Keeps the remarks of torch's exporters about themselves off people's terminals."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def export(model: nn.Module, input_size: tuple[int, ...], *, batch: int = 2, exactly: bool = False) -> ExportedProgram:
    """Returns torch's own export of a network.

    Args:
        model: The network.
        input_size: Of one image.
        batch: Images at a time; the number stays free, but for one image, of which torch knows no other number.
        exactly: Whether it is for this number of images alone.
    """
    example = torch.zeros(batch, *input_size)
    free = None if exactly or batch == 1 else ({0: torch.export.Dim.DYNAMIC},)
    try:
        with torch.no_grad(), without_warnings():
            return torch.export.export(model, (example,), dynamic_shapes=free, strict=False)
    except Exception as error:  # it raises whatever it meets in the network's own code
        raise DeployError(f"torch.export can't trace this network: {first_line(error)}") from error


def is_constant(node: Any) -> TypeGuard[Node]:
    """Whether a node stands for a tensor of the network's, and not for one that is computed at each run."""
    return isinstance(node, Node) and node.op == "get_attr"


def constant(graph: GraphModule, node: Any) -> Tensor:
    """Returns the tensor that a node stands for, one of the network's weights."""
    value: Any = graph
    for name in str(node.target).split("."):
        value = getattr(value, name)
    if not isinstance(value, Tensor):
        raise DeployError(f"{node.target} is not a tensor")
    return value.detach()


def new_constant(graph: GraphModule, name: str, value: Tensor, *, replace: bool = False) -> Node:
    """Keeps a tensor in a graph under a name; returns the node that stands for it."""
    path, _, last = name.rpartition(".")
    owner = graph.get_submodule(path) if path else graph
    if replace and hasattr(owner, last):
        delattr(owner, last)
    owner.register_buffer(last, value)
    return graph.graph.get_attr(name)


def readers_of(graph: GraphModule, name: str) -> int:
    """Returns how many nodes read a tensor of a graph."""
    return sum(len(node.users) for node in graph.graph.nodes if node.op == "get_attr" and node.target == name)


def put_in_place(graph: GraphModule, old: Node, new: Node) -> None:
    """Lets all readers of a node read another in its place."""
    new.meta["val"] = old.meta.get("val")
    old.replace_all_uses_with(new)
    graph.graph.erase_node(old)


def parts_of(node: Any) -> list[Node]:
    """Returns what a concatenation joins."""
    parts = node.args[0]
    return [part for part in parts if isinstance(part, Node)] if isinstance(parts, list | tuple) else []


def axis_of(node: Node) -> int:
    """Returns the axis of a concatenation."""
    axis = node.args[1] if len(node.args) > 1 else 0
    return int(str(axis)) % int(node.meta["val"].ndim)


def channels_of(node: Node) -> int:
    """Returns how many channels a node's result has."""
    return int(node.meta["val"].shape[1])


def function_of(node: Node) -> Callable[..., Any]:
    """Returns what a node calls."""
    if not callable(node.target):
        raise DeployError(f"{node.target} can't be called")
    return node.target


def tidied(graph: GraphModule) -> GraphModule:
    """Returns a graph without what nobody reads, checked and ready to run."""
    graph.graph.eliminate_dead_code()
    graph.graph.lint()
    graph.recompile()
    return graph
