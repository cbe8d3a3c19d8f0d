"""A network's graph in evaluation, in the plainest operations that say the same."""

import operator

from torch import nn
from torch.fx import GraphModule, Node

from cruciform.deployment.rewrites.concatenation import concatenations, push_down_
from cruciform.deployment.rewrites.graph import (
    aten,
    constant,
    export,
    is_constant,
    is_norm,
    put_in_place,
    tidied,
    without_warnings,
)
from cruciform.deployment.rewrites.norm import before_pooling_, fold_norm_, plain_norm
from cruciform.errors import DeployError
from cruciform.measure.state_guard import in_mode


def capture(model: nn.Module, input_size: tuple[int, ...], *, batch: int = 2) -> GraphModule:
    """Returns the graph of a network in evaluation, without operations that change their input, batch norm folded."""
    with in_mode(model, training=False):
        program = export(model, input_size, batch=batch)
    with without_warnings():
        graph = program.run_decompositions({}).module(check_guards=False)
    if not isinstance(graph, GraphModule):
        raise DeployError(f"torch.export returned a {type(graph).__name__}, not a GraphModule")
    for node in list(graph.graph.nodes):
        if node.target is aten.copy_.default and node.args[0].op == "placeholder":
            graph.graph.erase_node(node)  # nobody shall find his images changed; some engines return them, too
        elif node.target is aten._native_batch_norm_legit_no_training.default:
            fold_norm_(graph, before_pooling_(graph, plain_norm(graph, node)))
        elif node.target is aten.view.default:
            node.target = aten.reshape.default  # a view holds for one order in memory only
        if node.target is aten.reshape.default:
            _leave_images_free_(node)
        elif node.target is aten.adaptive_max_pool2d.default:
            _pool_globally_(graph, node)
        elif node.target is aten.prelu.default:
            _share_the_slope_(graph, node)
    for _, node in list(concatenations(graph)):
        push_down_(graph, node, behind=is_norm)
    return tidied(graph)


def _leave_images_free_(node: Node) -> None:
    """Lets a reshape find the number of images by itself, so that a part of the graph makes sense alone."""
    shape = node.args[1]
    sizes = list(shape) if isinstance(shape, list | tuple) else []
    if len([size for size in sizes if not isinstance(size, int) or size == -1]) == 1:
        node.args = (node.args[0], [size if isinstance(size, int) else -1 for size in sizes])


def _share_the_slope_(graph: GraphModule, node: Node) -> None:
    """Writes a PReLU with one slope for all channels as a leaky ReLU, which engines do many times faster."""
    given = node.args[1]
    if not is_constant(given):
        return
    slopes = constant(graph, given)
    if not bool((slopes == slopes[0]).all()):
        return
    with graph.graph.inserting_before(node):
        leaky = graph.graph.call_function(aten.leaky_relu.default, (node.args[0], float(slopes[0])))
    put_in_place(graph, node, leaky)


def _pool_globally_(graph: GraphModule, node: Node) -> None:
    """Writes the maximum of whole maps as an ordinary pooling, which engines have in their own order of memory."""
    source, size = node.args[0], node.args[1]
    if not isinstance(source, Node) or list(size) != [1, 1]:  # type: ignore[arg-type]
        return
    whole = [int(length) for length in source.meta["val"].shape[2:]]
    for reader in list(node.users):
        if reader.target is operator.getitem and reader.args[1] == 0:
            with graph.graph.inserting_before(reader):
                pooled = graph.graph.call_function(aten.max_pool2d.default, (source, whole, whole))
            put_in_place(graph, reader, pooled)
