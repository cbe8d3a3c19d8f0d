"""Exact rewrites of the concatenations at the end of low-rank layers.

Operations after a concatenation are mostly channel-wise (activation, pooling, batch norm), so they can run before it,
where engines fuse them with the convolution. A concatenation inside another is redundant; so is one that only
convolutions read, because a convolution of it is a sum of convolutions.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Literal

import torch
from torch.fx import GraphModule, Node

from cruciform.deployment.rewrites.graph import (
    CAT,
    CONVOLUTIONS,
    aten,
    axis_of,
    channels_of,
    constant,
    function_of,
    is_channelwise,
    is_constant,
    is_norm,
    new_constant,
    parts_of,
    put_in_place,
    tidied,
)
from cruciform.deployment.rewrites.norm import fold_norm_, norms_of_parts

Rewrite = Literal["concat", "tail", "split"]
"""concat: the layer unchanged; tail: channel-wise operations before the concatenation, nested ones merged; split: also
no concatenation where only convolutions read it."""


def concatenations(graph: GraphModule) -> Iterator[tuple[str, Node]]:
    """Yield the layers that end in a concatenation of convolutions along the channels, and the node."""
    for node in graph.graph.nodes:
        if node.target is CAT and axis_of(node) == 1 and (layer := _layer_of(node)):
            yield layer, node


def rewrite_(graph: GraphModule, forms: Mapping[str, Rewrite]) -> GraphModule:
    """Rewrite the concatenations of some layers, in place.

    Args:
        graph: A graph from ``capture``.
        forms: The rewrite of layers by name; others stay unchanged.
    """
    for layer, node in list(concatenations(graph)):
        form = forms.get(layer, "concat")
        if form != "concat":
            widths = [channels_of(part) for part in parts_of(node)]
            last = push_down_(graph, node, behind=is_channelwise)
            if last is not None and form == "split":
                _split_readers_(graph, last, widths)
    return tidied(graph)


def push_down_(graph: GraphModule, node: Node, *, behind: Callable[[Node], bool]) -> Node | None:
    """Move a concatenation after some operations; return it, or None where another absorbed it."""
    while True:
        readers = list(node.users)
        if behind is is_channelwise and readers and all(_joins(reader, node) for reader in readers):
            for reader in readers:
                _flatten_(reader, node)
            return None
        if len(readers) != 1 or readers[0].args[0] is not node:
            return node
        reader = readers[0]
        if not behind(reader):
            return node
        with graph.graph.inserting_before(reader):
            norm = is_norm(reader)
            parts = norms_of_parts(graph, reader) if norm else [_again(graph, reader, part) for part in parts_of(node)]
            joined = graph.graph.call_function(CAT, (parts, 1))
        put_in_place(graph, reader, joined)
        graph.graph.erase_node(node)
        for part in parts if norm else ():
            fold_norm_(graph, part)
        node = joined


def _split_readers_(graph: GraphModule, node: Node, widths: list[int]) -> None:
    """Replace convolutions of a concatenation by sums of convolutions of its parts."""
    readers = list(node.users)
    if not readers or not all(_is_dense_convolution_of(reader, node) for reader in readers):
        return
    for reader in readers:
        slices = torch.split(constant(graph, reader.args[1]), widths, dim=1)
        with graph.graph.inserting_before(reader):
            total: Node | None = None
            for number, (part, piece) in enumerate(zip(parts_of(node), slices, strict=True)):
                kernel = new_constant(graph, f"{reader.name}_part{number}", piece.contiguous())
                bias = reader.args[2] if len(reader.args) > 2 and number == 0 else None
                term = graph.graph.call_function(function_of(reader), (part, kernel, bias, *reader.args[3:]))
                total = term if total is None else graph.graph.call_function(aten.add.Tensor, (total, term))
        if total is not None:
            put_in_place(graph, reader, total)


def _layer_of(node: Node) -> str | None:
    names = set()
    for part in parts_of(node):
        if part.target not in CONVOLUTIONS or not isinstance(part.args[1], Node):
            return None
        names.add(str(part.args[1].target).rpartition(".")[0])
    return names.pop() if len(names) == 1 else None


def _joins(reader: Node, node: Node) -> bool:
    return reader.target is CAT and axis_of(reader) == 1 and node in parts_of(reader)


def _flatten_(outer: Node, inner: Node) -> None:
    parts: list[Node] = []
    for part in parts_of(outer):
        parts += parts_of(inner) if part is inner else [part]
    outer.args = (parts, 1)


def _is_dense_convolution_of(reader: Node, node: Node) -> bool:
    groups = reader.args[6] if len(reader.args) > 6 else 1
    is_dense = bool(reader.target in CONVOLUTIONS and reader.args[0] is node and groups == 1)
    return is_dense and is_constant(reader.args[1])


def _again(graph: GraphModule, reader: Node, part: Node) -> Node:
    return graph.graph.call_function(function_of(reader), (part, *reader.args[1:]), dict(reader.kwargs))
