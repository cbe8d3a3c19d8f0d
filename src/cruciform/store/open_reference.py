"""Open a network by reference: built by a library, or read from a model directory.

The one resolver under ``networks/open_network``, which adds runs, and under recipes, which may not name code.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load_model
from torch import nn

from cruciform.errors import OptionError, StoreError, first_line
from cruciform.files import check_regular
from cruciform.sources.build_network import build_network, split_reference, usual_preprocessing
from cruciform.sources.network_library import SOURCES
from cruciform.sources.own_code import build_own
from cruciform.store.directory import CARD, Base, interface_of, load, load_with, saved_base, saved_input_size
from cruciform.store.interface import Interface
from cruciform.store.recognize import describe_path


class Referenced(NamedTuple):
    """A network that a reference names.

    Attributes:
        model: The network.
        input_size: Channels and spatial size of one input; None where unknown.
        interface: Its preprocessing and class names, as far as they are known.
        base: How the unconverted network is built again, for model directories that are written from it.
        reinitialized: Tensors of a model directory whose shape the options changed; they have initial values.
    """

    model: nn.Module
    input_size: tuple[int, ...] | None
    interface: Interface
    base: Base
    reinitialized: tuple[str, ...] = ()


def is_directory(reference: str) -> bool:
    """Return whether a reference names a model directory."""
    return (Path(reference) / CARD).is_file()


def is_code(reference: str) -> bool:
    """Return whether a reference names a function of the user's: ``package.module:function``."""
    return split_reference(reference)[0] not in SOURCES


def open_reference(reference: str, options: Mapping[str, Any] | None = None, *, allow_code: bool = False) -> Referenced:
    """Open a model directory, or build a network by name.

    Args:
        reference: A model directory, a zoo name, ``timm:NAME``, ``torchvision:NAME``, ``monai:NAME``; with
            ``allow_code`` also ``package.module:function``.
        options: What else its source takes, such as ``{"num_classes": 10}``.
        allow_code: Whether the reference may import a function. Never for what was read from a file.
    """
    if is_directory(reference):
        directory = Path(reference)
        base = saved_base(directory)
        model, reinitialized = load_with(directory, options) if options else (load(directory), ())
        base = Base(base.reference, {**base.options, **(options or {})})
        return Referenced(model, saved_input_size(directory), interface_of(directory), base, reinitialized)
    if allow_code and is_code(reference):
        if options:
            raise OptionError(f"{reference} is a function that is called without arguments; it takes no options")
        return Referenced(build_own(reference), None, Interface(), Base())
    model, size = build_network(reference, options or {})
    return Referenced(
        model, size, Interface(usual_preprocessing(reference, model)), Base(reference, dict(options or {}))
    )


def load_weights_(model: nn.Module, path: Path | str) -> nn.Module:
    """Load the weights of a .safetensors file into a network, all of them or none."""
    path = Path(path)
    if path.suffix.lower() != ".safetensors" or not path.is_file():
        raise OptionError(f"{describe_path(path)} Weights are read from a .safetensors file only")
    try:
        load_model(model, check_regular(path))
    except (RuntimeError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise StoreError(f"the weights in {path} do not fit the network: {first_line(error)}") from error
    return model
