"""Export a network in evaluation mode as a graph of plain operations."""

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
from cruciform.deployment.rewrites.scale import fold_scale_
from cruciform.errors import DeployError
from cruciform.measure.state_guard import in_mode


def capture(model: nn.Module, input_size: tuple[int, ...], *, batch: int = 2) -> GraphModule:
    """Return the graph of a network in evaluation mode, without in-place operations; norms and scales are folded."""
    with in_mode(model, training=False):
        program = export(model, input_size, batch=batch)
    with without_warnings():
        graph = program.run_decompositions({}).module(check_guards=False)
    if not isinstance(graph, GraphModule):
        raise DeployError(f"torch.export returned a {type(graph).__name__}, not a GraphModule")
    for node in list(graph.graph.nodes):
        if node.target is aten.copy_.default and node.args[0].op == "placeholder":
            graph.graph.erase_node(node)  # must not overwrite the caller's images; some engines also return them
        elif node.target is aten._native_batch_norm_legit_no_training.default:
            fold_norm_(graph, before_pooling_(graph, plain_norm(graph, node)))
        elif node.target is aten.view.default:
            node.target = aten.reshape.default  # a view is valid for one memory format only
        elif node.target is aten.mul.Tensor:
            fold_scale_(graph, node)
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
    """Let a reshape infer the batch size, so that parts of the graph run on their own."""
    shape = node.args[1]
    sizes = list(shape) if isinstance(shape, list | tuple) else []
    if len([size for size in sizes if not isinstance(size, int) or size == -1]) == 1:
        node.args = (node.args[0], [size if isinstance(size, int) else -1 for size in sizes])


def _share_the_slope_(graph: GraphModule, node: Node) -> None:
    """Rewrite a PReLU with equal slopes as a leaky ReLU, which engines run many times faster."""
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
    """Rewrite global max pooling as ordinary pooling, which engines have in their own memory format."""
    source, size = node.args[0], node.args[1]
    if not isinstance(source, Node) or list(size) != [1, 1]:  # type: ignore[arg-type]
        return
    whole = [int(length) for length in source.meta["val"].shape[2:]]
    for reader in list(node.users):
        if reader.target is operator.getitem and reader.args[1] == 0:
            with graph.graph.inserting_before(reader):
                pooled = graph.graph.call_function(aten.max_pool2d.default, (source, whole, whole))
            put_in_place(graph, reader, pooled)
