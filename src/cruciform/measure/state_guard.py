"""Run a network for a measurement, and restore its state."""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

_Kept = dict[str, tuple[Any, Any]]


@contextmanager
def in_mode(model: nn.Module, *, training: bool) -> Iterator[None]:
    """Put a network into training or evaluation mode, and all that its modules hold back into its place after.

    Many keep something of their last run, a grid of positions for instance: on the meta device that would be of no use
    to anyone but us.
    """
    before = {module: _contents(module) for module in model.modules()}
    model.train(training)
    try:
        yield
    finally:
        for module, kept in before.items():
            _put_back_(module, kept)


def _contents(module: nn.Module) -> _Kept:
    """Return the attributes of a module, containers copied."""
    return {name: (value, _copy(value)) for name, value in vars(module).items()}


def _copy(value: Any) -> Any:
    return value.copy() if type(value) in (dict, OrderedDict, list, set) else None


def _put_back_(module: nn.Module, kept: _Kept) -> None:
    own = vars(module)
    for name in own.keys() - kept.keys():
        del own[name]
    for name, (value, content) in kept.items():
        own[name] = value
        if content is not None:
            value.clear()
            (value.extend if isinstance(value, list) else value.update)(content)
