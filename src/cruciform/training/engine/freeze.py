"""Parameters that stop learning: some before training begins, some when a share of it has passed."""

from collections.abc import Mapping

from torch import nn

from cruciform.errors import RecipeError
from cruciform.training.recipe.patterns import match


class Freeze:
    """Keeps parameters as they are.

    Args:
        model: The network. Parameters that never learn need no gradient from here on.
        until: From name patterns to the share of training during which such parameters learn.
    """

    def __init__(self, model: nn.Module, until: Mapping[str, float]) -> None:
        named = dict(model.named_parameters())
        self._until: dict[nn.Parameter, float] = {}
        for pattern, share in until.items():
            # What does not learn anyway, since whoever made the network froze it, stays as it is.
            chosen = [named[name] for name in match(pattern, named, "freeze")]
            self._until |= {parameter: share for parameter in chosen if parameter.requires_grad}
        for parameter, share in self._until.items():
            if not share:
                parameter.requires_grad_(False)
        if all(self._until.get(parameter, 1.0) < 1 for parameter in named.values() if parameter.requires_grad):
            raise RecipeError(f"freeze={dict(until)} leaves nothing that learns to the end; name fewer parameters")

    def spare_(self, passed: float) -> None:
        """Spares the backward pass gradients that nobody will use; for networks that no other process waits for."""
        for parameter, share in self._until.items():
            parameter.requires_grad_(passed < share)

    def forget_(self, passed: float) -> None:
        """Drops gradients that must not be used, however they came to be."""
        for parameter, share in self._until.items():
            if passed >= share:
                parameter.grad = None
