"""Build a network by calling a user's function: ``package.module:function``."""

import sys
from importlib import import_module
from pathlib import Path

from torch import nn

from cruciform.errors import OptionError, first_line, reraise_as


def build_own(reference: str) -> nn.Module:
    """Import a function by name and return the network that it builds.

    Args:
        reference: ``package.module:function``; the current directory is searched first, as ``python -m`` does.
    """
    module, _, attribute = reference.partition(":")
    if (here := str(Path.cwd())) not in sys.path[:1]:
        sys.path.insert(0, here)
    with reraise_as(
        OptionError,
        lambda error: f"{reference} can't be imported: {type(error).__name__}: {error}; write package.module:function",
    ):
        function = getattr(import_module(module), attribute)
    with reraise_as(OptionError, lambda error: f"{reference}() failed: {type(error).__name__}: {first_line(error)}"):
        model = function()
    if not isinstance(model, nn.Module):
        raise OptionError(f"{reference}() returned {type(model).__name__}, not a torch module")
    return model
