"""Freezing parameters from the start, or after a fraction of training."""

from collections.abc import Mapping

from torch import nn

from cruciform.errors import RecipeError
from cruciform.training.tables.patterns import match


class Freeze:
    """Freezes parameters.

    Args:
        model: The network. Parameters that are frozen from the start get ``requires_grad=False``.
        until: From parameter name patterns to the fraction of training after which they are frozen.
    """

    def __init__(self, model: nn.Module, until: Mapping[str, float]) -> None:
        named = dict(model.named_parameters())
        self._until: dict[nn.Parameter, float] = {}
        for pattern, fraction in until.items():
            # Parameters that the network's author froze stay frozen.
            chosen = [named[name] for name in match(pattern, named, "freeze")]
            self._until |= {parameter: fraction for parameter in chosen if parameter.requires_grad}
        for parameter, fraction in self._until.items():
            if not fraction:
                parameter.requires_grad_(False)
        if all(self._until.get(parameter, 1.0) < 1 for parameter in named.values() if parameter.requires_grad):
            raise RecipeError(
                f"freeze={dict(until)} freezes all parameters before the end of training; match fewer parameters"
            )

    def skip_gradients_(self, passed: float) -> None:
        """Exclude frozen parameters from the backward pass; not for wrapped networks, which expect all gradients."""
        for parameter, fraction in self._until.items():
            parameter.requires_grad_(passed < fraction)

    def drop_gradients_(self, passed: float) -> None:
        """Drop the gradients of frozen parameters."""
        for parameter, fraction in self._until.items():
            if passed >= fraction:
                parameter.grad = None
