"""Parameters that stop learning: some before training begins, some when a share of it has passed."""

from collections.abc import Mapping
from fnmatch import fnmatchcase

from torch import nn

from cruciform.errors import RecipeError
from cruciform.registry import did_you_mean


class Freeze:
    """Keeps parameters as they are.

    Args:
        model: The network. Parameters that never learn need no gradient from here on.
        until: From name patterns to the share of training during which such parameters learn.
    """

    def __init__(self, model: nn.Module, until: Mapping[str, float]) -> None:
        names = dict(model.named_parameters())
        self._until: dict[nn.Parameter, float] = {}
        for pattern, share in until.items():
            matching = [parameter for name, parameter in names.items() if fnmatchcase(name, pattern)]
            if not matching:
                hint = did_you_mean(pattern, names)
                raise RecipeError(f"freeze: no parameter of the network is called {pattern!r}.{hint}")
            self._until |= dict.fromkeys(matching, share)
        for parameter, share in self._until.items():
            if not share:
                parameter.requires_grad_(False)

    def spare_(self, passed: float) -> None:
        """Spares the backward pass gradients that nobody will use; for networks that no other process waits for."""
        for parameter, share in self._until.items():
            parameter.requires_grad_(passed < share)

    def forget_(self, passed: float) -> None:
        """Drops gradients that must not be used, however they came to be."""
        for parameter, share in self._until.items():
            if passed >= share:
                parameter.grad = None
