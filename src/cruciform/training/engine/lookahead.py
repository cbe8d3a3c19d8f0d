"""Lookahead (Zhang et al., 2019): slow weights follow the fast ones, which are reset to them every k steps.

    s ← α s + (1 − α) w,   w ← s      every k steps,   α = m · (t/T)^p

α grows towards the decay m as training ends; after the last step w = s, so the slow weights are the result.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from cruciform.training.run.checkpoint import is_finite
from cruciform.training.tables.lookahead_table import LookaheadTable


class Lookahead:
    """The slow weights of a network, running statistics included.

    Attributes:
        slow: The slow weights, by the names of the network's tensors.
    """

    def __init__(self, model: nn.Module, table: LookaheadTable) -> None:
        self._table = table
        tensors = model.state_dict(keep_vars=True)
        # A layer that is used twice has two names, and one slow copy.
        first = {id(tensor): name for name, tensor in reversed(tensors.items())}.values()
        # Tensors that are not finite are masks of −∞, which have no mean and stay as they are.
        follows = (name for name in first if tensors[name].is_floating_point() and is_finite(tensors[name]))
        self._fast = {name: tensors[name].detach() for name in follows}
        self.slow: dict[str, Tensor] = {name: tensor.detach().clone() for name, tensor in self._fast.items()}

    @torch.no_grad()
    def follow_(self, taken: int, passed: float) -> None:
        """Update the slow weights after a step, where it is one of every k.

        Args:
            taken: Steps taken.
            passed: The fraction of training that has passed.
        """
        table = self._table
        if taken % table.k and passed < 1:
            return
        # At the very end the slow weights are the result.
        kept = table.decay * passed**table.power if taken % table.k == 0 else 1.0
        for name, fast in self._fast.items():
            fast.copy_(self.slow[name].lerp_(fast, 1 - kept))

    def load_(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore slow weights that were saved."""
        for name, tensor in self.slow.items():
            tensor.copy_(tensors[name])
