"""Lookahead (Zhang et al., 2019): slow weights follow the fast ones, which start again from them every few steps.

    s ← α s + (1 − α) w,   w ← s      every k steps,   α = m · (t/T)^p

The slow weights remember more and more as training ends, and are what is left of it: w = s after the last step.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from cruciform.training.recipe.lookahead_table import LookaheadTable
from cruciform.training.run.checkpoint import is_finite


class Lookahead:
    """The slow weights of a network, running statistics included.

    Attributes:
        slow: By the names of the network's tensors.
    """

    def __init__(self, model: nn.Module, table: LookaheadTable) -> None:
        self._table = table
        tensors = model.state_dict(keep_vars=True)
        # A layer that stands in two places has two names, and follows once.
        first = {id(tensor): name for name, tensor in reversed(tensors.items())}.values()
        # What is not finite is a mask of −∞, which has no mean and stays what it is.
        follows = (name for name in first if tensors[name].is_floating_point() and is_finite(tensors[name]))
        self._fast = {name: tensors[name].detach() for name in follows}
        self.slow: dict[str, Tensor] = {name: tensor.detach().clone() for name, tensor in self._fast.items()}

    @torch.no_grad()
    def follow_(self, taken: int, passed: float) -> None:
        """Follows after a step where it is time.

        Args:
            taken: Steps taken.
            passed: The share of training that has passed with them.
        """
        table = self._table
        if taken % table.steps and passed < 1:
            return
        # Not at the very end: there the slow weights are the result.
        kept = table.memory * passed**table.power if taken % table.steps == 0 else 1.0
        for name, fast in self._fast.items():
            fast.copy_(self.slow[name].lerp_(fast, 1 - kept))

    def load_(self, tensors: Mapping[str, Tensor]) -> None:
        """Becomes what it was when these slow weights were saved."""
        for name, tensor in self.slow.items():
            tensor.copy_(tensors[name])
