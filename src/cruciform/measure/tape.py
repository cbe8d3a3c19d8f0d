"""Record the blocks of a network in the forward pass, and measure their gradients in the backward pass.

A block is a convolution with the normalization and non-linearity after it. ``cruciform.measure.gradients`` says
what is made of the measurements.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from cruciform.measure.trace import CONVOLUTION_CALLS, Call, Tracer, first_argument, tensors_in

# Operations after a convolution that belong to its block.
NORMALIZATIONS = frozenset({"batch_norm", "instance_norm", "group_norm", "layer_norm"})
CONTINUATIONS = NORMALIZATIONS | frozenset(
    "relu relu_ relu6 relu6_ leaky_relu leaky_relu_ elu elu_ selu selu_ celu celu_ gelu silu silu_ mish mish_ tanh "
    "tanh_ sigmoid sigmoid_ hardswish hardswish_ hardtanh hardtanh_ hardsigmoid prelu rrelu rrelu_ softplus "
    "local_response_norm dropout dropout_ dropout1d dropout2d dropout3d "
    "alpha_dropout feature_dropout".split()
)


@dataclass(eq=False)
class Node:
    """A tensor on its way through the network.

    Attributes:
        tensor: Itself, kept alive so that its identity stays its own.
        operation: The call that made it.
        depth: How many blocks stand before it.
        source: The deepest tensor that it was made from.
        block: The block that it belongs to.
        variance: Of a block's tensors; taken at once, since they may be changed in place later.
        readers: How many calls read it.
        energy: Of its gradient: the sum of squares over positions, averaged over images and channels.
    """

    tensor: Tensor
    operation: str
    depth: int
    source: "Node | None"
    block: "TapedBlock | None"
    variance: float = math.nan
    readers: int = 0
    energy: float = 0.0


@dataclass(eq=False)
class TapedBlock:
    """A block: where it starts, and the tensors that it may end with.

    Attributes:
        name: The convolution's layer.
        source: What it reads.
        variance_in: Variance of what it reads.
        energy_in: Energy of the gradient that this block alone sends to what it reads.
        chain: Its tensors, from the convolution's output on.
    """

    name: str
    source: Node
    variance_in: float
    energy_in: float = 0.0
    chain: list[Node] = field(default_factory=list)

    @property
    def end(self) -> Node:
        """The last tensor of the chain; an earlier one where something else reads it too, as a skip does."""
        return next((node for node in self.chain if node.readers != 1), self.chain[-1])


class GradientTape(Tracer):
    """Follows every tensor from the input on, finds the blocks and listens to the gradients.

    Attributes:
        blocks: All blocks in the order in which they ran.
    """

    def __init__(self, model: nn.Module, generator: torch.Generator) -> None:
        super().__init__(model)
        self._generator = generator
        self._nodes: dict[int, Node] = {}
        self._history: list[Node] = []
        self._listeners: list[RemovableHandle] = []
        self.blocks: list[TapedBlock] = []

    def before(self, call: Call) -> None:
        """Open a block at a convolution."""
        if call.module is None and call.operation not in CONVOLUTION_CALLS:
            return
        x = first_argument(call)
        if not (x.requires_grad and torch.is_grad_enabled()):
            return  # no gradient passes
        block = TapedBlock(call.layer or call.operation, self._node(x), _variance(x))
        self.blocks.append(block)
        call.note = block
        # An alias, so that the gradient through this block alone can be separated from that of its neighbors.
        alias = x.view_as(x)
        self._listeners.append(alias.register_hook(lambda gradient: _remember(block, gradient)))
        if call.args:
            call.args = (alias, *call.args[1:])
        else:
            call.kwargs = {**call.kwargs, "input": alias}

    def after(self, call: Call, output: Any) -> None:
        """Follow what the call made."""
        made = [tensor for tensor in tensors_in(output) if tensor.requires_grad and tensor.is_floating_point()]
        read = [self._nodes[id(t)] for t in tensors_in((call.args, call.kwargs)) if id(t) in self._nodes]
        if call.note is not None:
            read.append(call.note.source)  # of which the call was given an alias
        if not made or not read:
            return
        for node in read:
            node.readers += 1
        source = max(read, key=lambda node: node.depth)
        block: TapedBlock | None = call.note
        goes_on = call.operation in CONTINUATIONS and source.block is not None and source.block.chain[-1] is source
        depth = source.depth + (block is not None)
        for tensor in made:
            self._follow(tensor, Node(tensor, call.operation, depth, source, source.block if goes_on else block))

    def _follow(self, tensor: Tensor, node: Node) -> None:
        self._nodes[id(tensor)] = node
        self._history.append(node)
        if node.block is not None:
            node.block.chain.append(node)
            node.variance = _variance(tensor)
        self._listeners.append(tensor.register_hook(lambda gradient: self._pass_back(node, gradient)))

    def _node(self, tensor: Tensor) -> Node:
        return self._nodes.setdefault(id(tensor), Node(tensor, "input", 0, None, None))

    def _pass_back(self, node: Node, gradient: Tensor) -> Tensor | None:
        node.energy = _energy(gradient)
        if node.block is None or node.block.end is not node:
            return None
        noise = self.noise_like(gradient)
        return noise.mul_(gradient.norm() / noise.norm())

    def release(self) -> None:
        """Let go of all tensors: a hook and its tensor hold each other where Python's collector does not see it."""
        for listener in self._listeners:
            listener.remove()
        self._listeners.clear()
        self._nodes.clear()
        self._history.clear()
        self.blocks = []

    def depth_of(self, tensor: Tensor) -> int:
        """Return how many blocks stand before the tensor; -1 where it does not come from the input."""
        return self._nodes[id(tensor)].depth if id(tensor) in self._nodes else -1

    def noise_like(self, tensor: Tensor) -> Tensor:
        """Return standard normal noise of the tensor's shape."""
        return torch.randn(tensor.shape, generator=self._generator).to(tensor)

    def deepest_path(self) -> list[TapedBlock]:
        """Return the blocks from the input to the deepest one that a gradient reached, or else to the deepest."""
        reached = [block for block in self.blocks if block.end.energy != 0]
        path: list[TapedBlock] = []
        block = max(reached or self.blocks, key=lambda block: block.source.depth, default=None)
        while block is not None:
            path.insert(0, block)
            node: Node | None = block.source
            while node is not None and node.block is None:
                node = node.source
            block = node.block if node is not None else None
        return path

    def energy_behind(self, block: TapedBlock) -> float:
        """Return the energy of the gradient that enters a block at its output.

        It is the greatest at any tensor of the same shape and depth as the block's output: where the block stands
        in a branch that is scaled down before it is added, the gradient is that of the sum.
        """
        end = block.end
        peers = [n for n in self._history if n.depth == end.depth and n.tensor.shape == end.tensor.shape]
        return max(node.energy for node in peers)


def normalizations_between(first: TapedBlock, last: TapedBlock) -> int:
    """Return how many normalizations a gradient passes from the output of the last block to that of the first."""
    passed = 0
    node: Node | None = last.end
    while node is not None and node is not first.end:
        passed += node.operation in NORMALIZATIONS
        node = node.source
    return passed


def _energy(gradient: Tensor) -> float:
    channels = gradient.shape[0] * gradient.shape[1] if gradient.ndim > 1 else 1
    return float(gradient.double().square().sum()) / channels


def _remember(block: TapedBlock, gradient: Tensor) -> None:
    block.energy_in = _energy(gradient)


def _variance(tensor: Tensor) -> float:
    return float(tensor.detach().float().var())
