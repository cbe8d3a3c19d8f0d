"""Split a network where each image has become one vector: the trunk and the head."""

from torch import Tensor
from torch.fx import Graph, GraphModule, Node


def cut(graph: GraphModule) -> tuple[GraphModule, GraphModule | None, int]:
    """Split a network after the first vector that everything later is computed from.

    Returns:
        The trunk, which returns the vector; the head, None where nothing follows; the length of the vector, 0 where
        there is no such place and the network was not split.
    """
    nodes = list(graph.graph.nodes)
    for place, node in enumerate(nodes):
        value = node.meta.get("val")
        if node.op != "call_function" or not isinstance(value, Tensor) or value.ndim != 2:
            continue
        earlier = {before for before in nodes[:place] if before.op != "get_attr"}
        behind = [after for after in nodes[place + 1 :] if after.op == "call_function"]
        last = nodes[-1]
        if not any(source in earlier for after in (*behind, last) for source in after.all_input_nodes):
            head = _part(graph, behind, first=node, result=last.all_input_nodes[0]) if behind else None
            return _part(graph, nodes[:place], result=node), head, int(value.shape[1])
    return graph, None, 0


def _part(graph: GraphModule, nodes: list[Node], *, result: Node, first: Node | None = None) -> GraphModule:
    made = Graph()
    copies: dict[Node, Node] = {}
    if first is not None:
        copies[first] = made.placeholder("vectors")

    def copied(node: Node) -> Node:
        if node not in copies:
            copies[node] = made.node_copy(node, copied)
        return copies[node]

    for node in (*nodes, result):
        copied(node)
    made.output(copies[result])
    made.eliminate_dead_code()
    return GraphModule(graph, made)
