"""3-D convolutions with kernels along one or two axes as 2-D convolutions: the same sums.

A volume (d, h, w) is also a map of d rows and h·w columns, with the same memory. A step along h is then a step of w
columns, so a k×k×1 kernel is a k×k kernel with a dilation of w along the columns, and zero padding along h is zero
padding of the columns. A 1×1×k kernel is a 1×k kernel on d·h rows. Some engines have a fast memory format for 2-D only.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule, Node
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from cruciform.deployment.rewrites.graph import (
    aten,
    constant,
    function_of,
    is_channelwise,
    is_constant,
    new_constant,
    put_in_place,
    tidied,
    without_warnings,
)

FEWEST = 32
"""Input channels; with fewer it was not faster in ONNX Runtime, whose memory format pads channels with zeros."""

POOLINGS = frozenset({aten.max_pool3d.default, aten.avg_pool3d.default, aten.adaptive_avg_pool3d.default})


class MapConvolution(NamedTuple):
    """A 3-D convolution as a 2-D one.

    Attributes:
        size: Rows and columns of the 2-D input.
        kernel: The 2-D kernel.
        stride: The 2-D stride.
        padding: The 2-D padding.
        dilation: The 2-D dilation.
    """

    size: tuple[int, int]
    kernel: Tensor
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]


def volumes_as_maps_(graph: GraphModule, input_size: tuple[int, ...]) -> bool:
    """Rewrite 3-D convolutions as 2-D ones where possible, in place.

    Returns:
        Whether there were any.
    """
    _find_sizes_(graph, input_size)
    found = False
    for node in list(graph.graph.nodes):
        if node.target is aten.conv3d.default and (made := _as_maps(graph, node)) is not None:
            _rewrite_(graph, node, made)
            found = True
    if found:
        tidied(graph)
    return found


def _find_sizes_(graph: GraphModule, input_size: tuple[int, ...]) -> None:
    """Annotate every node with its output shape, which earlier rewrites left unknown."""
    inputs = {node: node.meta.get("val") for node in graph.graph.find_nodes(op="placeholder")}
    with without_warnings():
        FakeTensorProp(graph, FakeTensorMode(allow_non_fake_inputs=True)).propagate(torch.zeros(2, *input_size))
    for node, value in inputs.items():
        node.meta["val"] = value  # by which a graph knows that the number of images is free


def _as_maps(graph: GraphModule, node: Node) -> MapConvolution | None:
    if not is_constant(node.args[1]):
        return None
    source, weight = node.args[0], constant(graph, node.args[1])
    if not isinstance(source, Node) or weight.shape[1] < FEWEST or weight[0, 0].numel() == 1:
        return None
    d, h, w = (int(length) for length in source.meta["val"].shape[2:])
    stride, padding, dilation = (_three(node, index, default) for index, default in ((3, 1), (4, 0), (5, 1)))
    if weight.shape[4] == 1 and stride[1:] == (1, 1) and padding[2] == 0:
        return MapConvolution(
            (d, h * w), weight[..., 0], (stride[0], 1), (padding[0], padding[1] * w), (dilation[0], dilation[1] * w)
        )
    if weight.shape[2:4] == (1, 1) and stride[:2] == (1, 1) and padding[:2] == (0, 0):
        return MapConvolution((d * h, w), weight[:, :, 0], (1, stride[2]), (0, padding[2]), (1, dilation[2]))
    return None


def _three(node: Node, index: int, default: int) -> tuple[int, ...]:
    """Return an argument for each of the three axes."""
    value = node.args[index] if len(node.args) > index else default
    numbers = tuple(int(str(number)) for number in value) if isinstance(value, list | tuple) else (int(str(value)),)
    return numbers * 3 if len(numbers) == 1 else numbers


def _goes_with_it(node: Node) -> bool:
    return is_channelwise(node) and node.target not in POOLINGS


def _rewrite_(graph: GraphModule, node: Node, made: MapConvolution) -> None:
    source = node.all_input_nodes[0]
    groups = node.args[6] if len(node.args) > 6 else 1
    # What does something to every number behind it goes with it: engines do both at once.
    behind = [node]
    while len(behind[-1].users) == 1 and _goes_with_it(reader := next(iter(behind[-1].users))):
        behind.append(reader)
    last = behind[-1]
    with graph.graph.inserting_before(node):
        maps = graph.graph.call_function(
            aten.reshape.default, (source, [-1, int(source.meta["val"].shape[1]), *made.size])
        )
        kernel = new_constant(graph, f"{node.name}_as_maps", made.kernel.contiguous())
        bias = node.args[2] if len(node.args) > 2 else None
        result = graph.graph.call_function(
            aten.conv2d.default,
            (maps, kernel, bias, list(made.stride), list(made.padding), list(made.dilation), groups),
        )
    with graph.graph.inserting_before(last):
        for other in behind[1:]:
            result = graph.graph.call_function(function_of(other), (result, *other.args[1:]), dict(other.kwargs))
        size = [int(length) for length in last.meta["val"].shape[1:]]
        volume = graph.graph.call_function(aten.reshape.default, (result, [-1, *size]))
    put_in_place(graph, last, volume)
