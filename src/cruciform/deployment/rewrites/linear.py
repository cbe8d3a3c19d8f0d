"""Linear layers as 1×1 convolutions: the same sums, which some engines run faster."""

from torch.fx import GraphModule, Node

from cruciform.deployment.rewrites.graph import (
    CHANNELWISE,
    CONVOLVE,
    aten,
    constant,
    function_of,
    is_constant,
    new_constant,
    put_in_place,
    tidied,
)


def linear_as_convolution_(graph: GraphModule) -> bool:
    """Rewrite linear layers that read 1×1 feature maps, directly or through each other, in place.

    Returns:
        Whether there were any.
    """
    maps: dict[Node, Node] = {}  # a vector per image -> the same as 1×1 feature maps
    found = False
    for node in list(graph.graph.nodes):
        source = node.args[0] if node.args and isinstance(node.args[0], Node) else None
        if source is None:
            continue
        if node.target is aten.reshape.default and _is_one_pixel(source) and node.meta["val"].ndim == 2:
            maps[node] = source
        elif source in maps and node.target is aten.linear.default and is_constant(node.args[1]):
            maps[node] = _convolution(graph, node, maps[source])
            found = True
        elif source in maps and node.target in CHANNELWISE:
            with graph.graph.inserting_before(node):
                maps[node] = graph.graph.call_function(
                    function_of(node), (maps[source], *node.args[1:]), dict(node.kwargs)
                )
    for node, pixel in maps.items():
        if any(reader not in maps for reader in node.users):
            with graph.graph.inserting_before(node):
                vector = graph.graph.call_function(aten.reshape.default, (pixel, [-1, int(node.meta["val"].shape[1])]))
            put_in_place(graph, node, vector)
    tidied(graph)
    return found


def _is_one_pixel(node: Node) -> bool:
    shape = node.meta["val"].shape
    return len(shape) in CONVOLVE and all(length == 1 for length in shape[2:])


def _convolution(graph: GraphModule, node: Node, pixel: Node) -> Node:
    weight = constant(graph, node.args[1])
    rank = _rank_of(pixel)
    with graph.graph.inserting_before(node):
        kernel = new_constant(graph, f"{node.name}_kernel", weight.reshape(*weight.shape, *(1,) * rank))
        bias = node.args[2] if len(node.args) > 2 else None
        made = graph.graph.call_function(CONVOLVE[rank + 2], (pixel, kernel, bias))
    made.meta["rank"] = rank
    return made


def _rank_of(node: Node) -> int:
    """Return the number of spatial axes, from the example value or the note that ``_convolution`` left."""
    while "val" not in node.meta and "rank" not in node.meta:
        node = node.all_input_nodes[0]
    return int(node.meta["rank"]) if "rank" in node.meta else int(node.meta["val"].ndim) - 2
