"""What the output channels of a convolution reach, in the exported graph of a network.

A value *carries* the channels along an axis: each channel is a block of so many values in sequence there, one before
and several after a flatten. Every operation that reads such a value either hands the channels on, or mixes them by a
weight that has an axis for them, or can't be understood: then the order of the channels is not ours to choose.
"""

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.fx import Node

from cruciform.compression.channel_order.permutation import ChannelAxis, ChannelReach
from cruciform.deployment.rewrites.graph import export
from cruciform.errors import DeployError
from cruciform.measure.state_guard import in_mode

ELEMENTWISE = frozenset(
    "relu relu6 gelu silu leaky_relu hardtanh hardswish hardsigmoid sigmoid tanh elu celu selu softplus mish "
    "log_sigmoid threshold hardshrink softshrink tanhshrink softsign clamp clamp_min clamp_max abs neg exp sqrt square "
    "pow add sub mul div maximum minimum clone contiguous detach alias to _to_copy dropout feature_dropout "
    "alpha_dropout".split()
)
KINDS = "max_pool avg_pool adaptive_avg_pool adaptive_max_pool upsample_nearest reflection_pad replication_pad".split()
WINDOWED = frozenset(f"{kind}{rank}d" for rank in (1, 2, 3) for kind in KINDS) | {
    "upsample_linear1d",
    "upsample_bilinear2d",
    "upsample_bicubic2d",
    "upsample_trilinear3d",
}
WITH_OTHERS = {
    "cat": "they are concatenated with others",
    "add": "they are added to values in another order",
    "sub": "they are added to values in another order",
    "mul": "they are multiplied by values in another order",
}


class Carried(NamedTuple):
    """How a value carries the channels: along which axis, and how many values in sequence each channel is."""

    axis: int
    block: int


class _FixedOrderError(Exception):
    """The order of the channels is fixed, for this reason."""


def find_reaches(
    model: nn.Module, names: Iterable[str], input_size: tuple[int, ...]
) -> tuple[dict[str, ChannelReach], dict[str, str]]:
    """Return what the output channels of convolutions reach, and by name why the order of some is fixed.

    Args:
        model: The network.
        names: Convolutions.
        input_size: Channels and spatial size of one image.
    """
    names = list(names)
    reaches: dict[str, ChannelReach] = {}
    try:
        with in_mode(model, training=False):
            graph = NetworkGraph(model, export(model, input_size, exactly=True))
    except DeployError as error:
        return {}, dict.fromkeys(names, str(error))
    if graph.unused:
        return {}, dict.fromkeys(names, f"{graph.unused[0]} is not used in evaluation, and may read them in training")
    fixed: dict[str, str] = {}
    for name in names:
        try:
            reaches[name] = graph.follow(name)
        except _FixedOrderError as reason:
            fixed[name] = str(reason)
    return reaches, fixed


class NetworkGraph:
    """A network as its exported graph, with the names of its parameters and buffers.

    Args:
        model: The network.
        program: What torch.export made of it.
    """

    def __init__(self, model: nn.Module, program: ExportedProgram) -> None:
        signature, state = program.graph_signature, model.state_dict()
        self._names: Mapping[str, str] = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        self._nodes = list(program.graph.nodes)
        memory = Counter(_memory(tensor) for tensor in state.values())
        # What is not in the state is not saved, and would be in its old order again after loading.
        self._alone = {name for name, tensor in state.items() if memory[_memory(tensor)] == 1}
        used = {self._names[node.name] for node in self._nodes if node.name in self._names and node.users}
        parameters = dict(model.named_parameters(remove_duplicate=False))
        in_use = {_memory(parameters[name]) for name in used if name in parameters}
        self.unused = [name for name, tensor in parameters.items() if _memory(tensor) not in in_use]

    def follow(self, name: str) -> ChannelReach:
        """Return what the output channels of a convolution reach; raise where their order is fixed."""
        calls = [node for node in self._nodes if self._is_call_of(node, f"{name}.weight")]
        if not calls:
            raise _FixedOrderError("its weight is computed, or tied to another layer")
        if len(calls) > 1:
            raise _FixedOrderError(f"the layer is called {len(calls)} times")
        own = [*self._axis_of(calls[0].args[1]), *(self._axis_of(calls[0].args[2]) if len(calls[0].args) > 2 else [])]
        carried = {calls[0]: Carried(1, 1)}
        others: list[ChannelAxis] = []
        for node in self._nodes:
            if node in carried or not any(source in carried for source in node.all_input_nodes):
                continue
            if node.op == "output":
                raise _FixedOrderError("the network returns them")
            if not isinstance(node.meta.get("val"), Tensor | list | tuple):
                continue  # it reads a size, or asserts something
            carries = self._hand_on(node, carried, others)
            if carries is not None:
                carried[node] = carries
        return ChannelReach(tuple(own), tuple(others))

    def _is_call_of(self, node: Node, weight: str) -> bool:
        return _operation(node).startswith("conv") and any(
            isinstance(source, Node) and self._names.get(source.name) == weight for source in node.args[1:2]
        )

    def _axis_of(self, node: Any, axis: int = 0, block: int = 1) -> list[ChannelAxis]:
        """Return the axis of a parameter or buffer that is in the order of the channels; nothing for None."""
        if node is None:
            return []
        name = self._names.get(node.name) if isinstance(node, Node) else None
        if name is None:
            raise _FixedOrderError("they are read by a weight that is computed")
        if len(node.users) > 1 or name not in self._alone:
            raise _FixedOrderError(f"{name} is used by several layers, or is not saved with the network")
        return [ChannelAxis(name, axis, block)]

    def _hand_on(self, node: Node, carried: Mapping[Node, Carried], others: list[ChannelAxis]) -> Carried | None:
        """Return how the output of an operation carries the channels; None where they end, in weights of its own."""
        name = _operation(node)
        sources = [source for source in node.all_input_nodes if isinstance(source.meta.get("val"), Tensor)]
        states = {carried.get(source) for source in sources}
        if name in ELEMENTWISE:
            if len(states) > 1 or len({len(_shape(source)) for source in sources}) > 1:
                raise _FixedOrderError(WITH_OTHERS.get(name, f"{name} combines them with values in another order"))
            return carried[sources[0]]
        x = node.args[0] if node.args else None
        if node.target is operator.getitem and isinstance(x, Node):
            return carried[x]  # of a pooling that also returns where it found each maximum
        rule = _RULES.get("window" if name in WINDOWED else name)
        if rule is None or not isinstance(x, Node) or x not in carried or sum(s in carried for s in sources) > 1:
            unknown = f"it is not known what {name or node.target} does to their order"
            raise _FixedOrderError(WITH_OTHERS.get(name, unknown))
        carries, axes = rule(node, x, carried[x])
        for source, axis, block in axes:
            others += self._axis_of(source, axis, block)
        return carries


ChannelAxes = list[tuple[Any, int, int]]
Rule = Callable[[Node, Node, Carried], tuple[Carried | None, ChannelAxes]]


def _operation(node: Node) -> str:
    """Return ``relu`` for ``aten.relu_.default``; nothing for what is not an operation on tensors."""
    parts = str(node.target).split(".")
    return parts[1].rstrip("_") if node.op == "call_function" and len(parts) == 3 and parts[0] == "aten" else ""


def _shape(node: Any) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape)


def _argument(node: Node, index: int, name: str, default: Any) -> Any:
    return node.args[index] if len(node.args) > index else node.kwargs.get(name, default)


def _need(node: Node, *, that: bool) -> None:
    if not that:
        raise _FixedOrderError(f"{_operation(node)} mixes them in an order of its own")


def _convolution(node: Node, x: Node, at: Carried) -> tuple[Carried | None, ChannelAxes]:
    weight, bias = node.args[1], _argument(node, 2, "bias", None)
    filters, inputs = _shape(weight)[:2]
    _need(node, that=at == (1, 1) and len(_shape(x)) == len(_shape(weight)))
    if inputs == _shape(x)[1]:
        return None, [(weight, 1, 1)]
    _need(node, that=inputs == 1 and filters == _shape(x)[1])  # depthwise
    return at, [(weight, 0, 1), (bias, 0, 1)]


def _linear(node: Node, x: Node, at: Carried) -> tuple[Carried | None, ChannelAxes]:
    _need(node, that=at.axis == len(_shape(x)) - 1)
    return None, [(node.args[1], 1, at.block)]


def _norm(node: Node, x: Node, at: Carried) -> tuple[Carried | None, ChannelAxes]:
    _need(node, that=at.axis == 1)
    return at, [(source, 0, at.block) for source in node.args[1:5]]


def _slopes(node: Node, x: Node, at: Carried) -> tuple[Carried | None, ChannelAxes]:
    _need(node, that=at.axis == 1)
    return at, [(node.args[1], 0, at.block)] if prod(_shape(node.args[1])) > 1 else []


def _window(node: Node, x: Node, at: Carried) -> tuple[Carried | None, ChannelAxes]:
    # An input without a batch would have its channels where others have it.
    rank = int(_operation(node)[-2])
    _need(node, that=at == (1, 1) and len(_shape(x)) == rank + 2)
    return at, []


def _pad(node: Node, x: Node, at: Carried) -> tuple[Carried | None, ChannelAxes]:
    _need(node, that=at == (1, 1) and len(node.args[1]) <= 2 * (len(_shape(x)) - 2))  # type: ignore[arg-type]
    return at, []


def _mean(node: Node, x: Node, at: Carried) -> tuple[Carried | None, ChannelAxes]:
    axes = [int(axis) % len(_shape(x)) for axis in _argument(node, 1, "dim", None) or range(len(_shape(x)))]
    _need(node, that=min(axes) > at.axis)
    return at, []


def _reshape(node: Node, x: Node, at: Carried) -> tuple[Carried | None, ChannelAxes]:
    before, after = _shape(x), _shape(node)
    _need(node, that=at.axis == 1 and prod(before[1:]) == prod(after[1:]))
    if after[1] == before[1]:
        return at, []
    _need(node, that=len(after) == 2)
    return Carried(1, at.block * prod(before[2:])), []


def _permute(node: Node, x: Node, at: Carried) -> tuple[Carried | None, ChannelAxes]:
    axes = [int(axis) % len(_shape(x)) for axis in list(node.args[1])]  # type: ignore[arg-type]
    return Carried(axes.index(at.axis), at.block), []


_RULES: dict[str, Rule] = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _convolution),
    **dict.fromkeys(("batch_norm", "instance_norm"), _norm),
    **dict.fromkeys(("mean", "sum", "amax"), _mean),
    **dict.fromkeys(("flatten", "view", "reshape", "squeeze", "unsqueeze"), _reshape),
    "linear": _linear,
    "prelu": _slopes,
    "window": _window,
    "pad": _pad,
    "constant_pad_nd": _pad,
    "permute": _permute,
}


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
