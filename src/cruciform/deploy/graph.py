"""A network as a graph of tensor operations, and exact rewrites of it: the same function, other arithmetic.

A composite layer ends in a concatenation of its groups. What follows works on each channel by itself more often than
not (activation, pooling, batch norm), so it may as well be done before the concatenation, where engines fuse it with
the convolution; a concatenation within another need not be made; nor need one that only convolutions read, for a
convolution of it is a sum of convolutions.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from cruciform.errors import DeployError, first_line

aten = torch.ops.aten

Rewrite = Literal["concat", "tail", "split"]
"""concat: as the layer is written; tail: channel-wise operations before the concatenation, and none within another;
split: besides, none where only convolutions read it."""

CHANNELWISE = frozenset({
    aten.relu.default, aten.gelu.default, aten.silu.default, aten.leaky_relu.default, aten.hardtanh.default,
    aten.hardswish.default, aten.hardsigmoid.default, aten.sigmoid.default, aten.tanh.default, aten.elu.default,
    aten.clone.default, aten.dropout.default, aten.max_pool2d.default, aten.max_pool3d.default,
    aten.avg_pool2d.default, aten.avg_pool3d.default, aten.adaptive_avg_pool2d.default,
    aten.adaptive_avg_pool3d.default,
})  # fmt: skip
"""Operations on every channel by itself, whose first argument is what they work on."""

CONVOLUTIONS = frozenset({aten.conv1d.default, aten.conv2d.default, aten.conv3d.default})
NORM = aten.batch_norm.default
CAT = aten.cat.default


def capture(model: nn.Module, input_size: tuple[int, ...], *, batch: int = 2) -> GraphModule:
    """Returns the graph of a network in evaluation, without operations that change their input, batch norm folded."""
    program = export(model.eval(), input_size, batch=batch)
    with without_warnings():
        graph = program.run_decompositions({}).module(check_guards=False)
    if not isinstance(graph, GraphModule):
        raise DeployError(f"torch.export gave {type(graph).__name__}")
    for node in list(graph.graph.nodes):
        if node.target is aten._native_batch_norm_legit_no_training.default:
            _fold_norm_(graph, _plain_norm(graph, node))
        elif node.target is aten.view.default:
            node.target = aten.reshape.default  # a view holds for one order in memory only
    for _, node in list(concatenations(graph)):
        _push_down_(graph, node, behind=frozenset({NORM}))
    return _tidied(graph)


@contextmanager
def without_warnings() -> Iterator[None]:
    """Keeps the remarks of torch's exporters about themselves off people's terminals."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def export(model: nn.Module, input_size: tuple[int, ...], *, batch: int = 2) -> ExportedProgram:
    """Returns torch's own export of a network; the number of images stays free where it can."""
    example = torch.zeros(batch, *input_size)
    free = ({0: torch.export.Dim.DYNAMIC},) if batch > 1 else None
    try:
        with torch.no_grad(), without_warnings():
            return torch.export.export(model, (example,), dynamic_shapes=free, strict=False)
    except Exception as error:  # it raises whatever it meets in the network's own code
        raise DeployError(f"torch.export can't follow this network: {first_line(error)}") from error


def concatenations(graph: GraphModule) -> Iterator[tuple[str, Node]]:
    """Yields the layers that end in a concatenation of convolutions along the channels, and the node."""
    for node in graph.graph.nodes:
        if node.target is CAT and _axis(node) == 1 and (layer := _layer_of(node)):
            yield layer, node


def rewrite_(graph: GraphModule, forms: Mapping[str, Rewrite]) -> GraphModule:
    """Rewrites the concatenations of some layers, in place.

    Args:
        graph: What ``capture`` gave.
        forms: A rewrite for layers by name; others stay as they are.
    """
    for layer, node in list(concatenations(graph)):
        form = forms.get(layer, "concat")
        if form != "concat":
            widths = [_channels(part) for part in _parts(node)]
            last = _push_down_(graph, node, behind=CHANNELWISE)
            if last is not None and form == "split":
                _split_readers_(graph, last, widths)
    return _tidied(graph)


def _push_down_(graph: GraphModule, node: Node, *, behind: frozenset[Any]) -> Node | None:
    """Moves a concatenation behind some operations; returns it where it ends up, None where another swallowed it."""
    while True:
        readers = list(node.users)
        if behind is CHANNELWISE and readers and all(_joins(reader, node) for reader in readers):
            for reader in readers:
                _flatten_(reader, node)
            return None
        if len(readers) != 1 or readers[0].args[0] is not node:
            return node
        reader = readers[0]
        if reader.target not in behind:
            return node
        with graph.graph.inserting_before(reader):
            norm = reader.target is NORM
            parts = _norms_of_parts(graph, reader) if norm else [_again(graph, reader, part) for part in _parts(node)]
            joined = graph.graph.call_function(CAT, (parts, 1))
        _put_in_place(graph, reader, joined)
        graph.graph.erase_node(node)
        for part in parts if norm else ():
            _fold_norm_(graph, part)
        node = joined


def _split_readers_(graph: GraphModule, node: Node, widths: list[int]) -> None:
    """Lets convolutions read the parts of a concatenation, each with its slice of their kernel, and add up."""
    readers = list(node.users)
    if not readers or not all(_is_dense_convolution_of(reader, node) for reader in readers):
        return
    for reader in readers:
        slices = torch.split(_constant(graph, reader.args[1]), widths, dim=1)
        with graph.graph.inserting_before(reader):
            total: Node | None = None
            for number, (part, piece) in enumerate(zip(_parts(node), slices, strict=True)):
                kernel = _new_constant(graph, f"{reader.name}_part{number}", piece.contiguous())
                bias = reader.args[2] if len(reader.args) > 2 and number == 0 else None
                term = graph.graph.call_function(_function(reader), (part, kernel, bias, *reader.args[3:]))
                total = term if total is None else graph.graph.call_function(aten.add.Tensor, (total, term))
        if total is not None:
            _put_in_place(graph, reader, total)


def _fold_norm_(graph: GraphModule, node: Node) -> None:
    """Folds a batch norm into the convolution before it, where nobody else reads that."""
    source = node.args[0]
    if not isinstance(source, Node) or source.target not in CONVOLUTIONS or len(source.users) != 1:
        return
    scale, shift = _scale_and_shift(graph, node)
    weight = _constant(graph, source.args[1])
    has_bias = len(source.args) > 2 and source.args[2] is not None
    bias = _constant(graph, source.args[2]) if has_bias else torch.zeros_like(shift)
    # Named as the layer's own, so that a layer is still known by the names of its weights.
    name = str(source.args[1].target) if isinstance(source.args[1], Node) else source.name
    with graph.graph.inserting_before(source):
        kernel = _new_constant(graph, name, weight * scale.reshape(-1, *(1,) * (weight.ndim - 1)), replace=True)
        offset = _new_constant(graph, f"{source.name}_offset", bias * scale + shift)
    source.args = (source.args[0], kernel, offset, *source.args[3:])
    node.replace_all_uses_with(source)
    graph.graph.erase_node(node)


def _plain_norm(graph: GraphModule, node: Node) -> Node:
    """Writes a batch norm as one operation with one result; its other results are for training."""
    x, weight, bias, mean, variance, momentum, epsilon = node.args
    with graph.graph.inserting_before(node):
        norm = graph.graph.call_function(NORM, (x, weight, bias, mean, variance, False, momentum, epsilon, False))
    for reader in list(node.users):
        _put_in_place(graph, reader, norm)
    graph.graph.erase_node(node)
    return norm


def _norms_of_parts(graph: GraphModule, node: Node) -> list[Node]:
    """Returns a batch norm of each part of the concatenation that a batch norm reads."""
    parts = _parts(node.args[0])
    widths = [_channels(part) for part in parts]
    made = []
    for number, part in enumerate(parts):
        constants = [
            None
            if constant is None
            else _new_constant(graph, f"{node.name}_{number}_{index}", _constant(graph, constant).split(widths)[number])
            for index, constant in enumerate(node.args[1:5])
        ]
        made.append(graph.graph.call_function(NORM, (part, *constants, *node.args[5:])))
        made[-1].meta["val"] = part.meta["val"]
    return made


def _scale_and_shift(graph: GraphModule, node: Node) -> tuple[Tensor, Tensor]:
    mean, variance = (_constant(graph, node.args[index]) for index in (3, 4))
    scale = torch.rsqrt(variance + float(str(node.args[7])))
    if node.args[1] is not None:
        scale = scale * _constant(graph, node.args[1])
    shift = -mean * scale
    return scale, shift if node.args[2] is None else shift + _constant(graph, node.args[2])


def _layer_of(node: Node) -> str | None:
    names = set()
    for part in _parts(node):
        if part.target not in CONVOLUTIONS or not isinstance(part.args[1], Node):
            return None
        names.add(str(part.args[1].target).rpartition(".")[0])
    return names.pop() if len(names) == 1 else None


def _joins(reader: Node, node: Node) -> bool:
    return reader.target is CAT and _axis(reader) == 1 and node in _parts(reader)


def _flatten_(outer: Node, inner: Node) -> None:
    parts: list[Node] = []
    for part in _parts(outer):
        parts += _parts(inner) if part is inner else [part]
    outer.args = (parts, 1)


def _is_dense_convolution_of(reader: Node, node: Node) -> bool:
    groups = reader.args[6] if len(reader.args) > 6 else 1
    return bool(reader.target in CONVOLUTIONS and reader.args[0] is node and groups == 1)


def _again(graph: GraphModule, reader: Node, part: Node) -> Node:
    return graph.graph.call_function(_function(reader), (part, *reader.args[1:]), dict(reader.kwargs))


def _put_in_place(graph: GraphModule, old: Node, new: Node) -> None:
    new.meta["val"] = old.meta.get("val")
    old.replace_all_uses_with(new)
    graph.graph.erase_node(old)


def _constant(graph: GraphModule, node: Any) -> Tensor:
    value: Any = graph
    for name in str(node.target).split("."):
        value = getattr(value, name)
    if not isinstance(value, Tensor):
        raise DeployError(f"{node.target} is not a tensor")
    return value.detach()


def _new_constant(graph: GraphModule, name: str, value: Tensor, *, replace: bool = False) -> Node:
    path, _, last = name.rpartition(".")
    owner = graph.get_submodule(path) if path else graph
    if replace and hasattr(owner, last):
        delattr(owner, last)
    owner.register_buffer(last, value)
    return graph.graph.get_attr(name)


def _parts(node: Any) -> list[Node]:
    parts = node.args[0]
    return [part for part in parts if isinstance(part, Node)] if isinstance(parts, list | tuple) else []


def _axis(node: Node) -> int:
    axis = node.args[1] if len(node.args) > 1 else 0
    return int(str(axis)) % int(node.meta["val"].ndim)


def _channels(node: Node) -> int:
    return int(node.meta["val"].shape[1])


def _function(node: Node) -> Callable[..., Any]:
    if not callable(node.target):
        raise DeployError(f"{node.target} can't be called")
    return node.target


def _tidied(graph: GraphModule) -> GraphModule:
    graph.graph.eliminate_dead_code()
    graph.graph.lint()
    graph.recompile()
    return graph
