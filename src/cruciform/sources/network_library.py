"""A source: a library that builds networks by name. Names are looked up in the library's own list, never imported."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

from torch import nn

from cruciform.errors import MissingExtraError, UnknownNameError
from cruciform.registry import Registry, did_you_mean


@dataclass(frozen=True)
class NetworkLibrary:
    """A library of networks.

    Attributes:
        names: Returns all names.
        build: Builds a network, without trained weights, from its name and options.
        input_size: Returns channels and spatial size of its input, from its name and itself.
        preprocessing: Returns the usual preprocessing of a network, as recipes write it; None where the library does
            not have it.
    """

    names: Callable[[], list[str]]
    build: Callable[[str, Mapping[str, Any]], nn.Module]
    input_size: Callable[[str, nn.Module], tuple[int, ...]]
    preprocessing: Callable[[nn.Module], dict[str, Any] | None] = lambda model: None


SOURCES: Registry[NetworkLibrary] = Registry("source of networks")


def import_library(module: Literal["timm", "torchvision.models", "monai.networks.nets"], extra: str) -> Any:
    """Import one of the known libraries, or raise with what to install."""
    library = module.partition(".")[0]
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(f"{library} is not installed: pip install 'cruciform[{extra}]'") from error
    except RuntimeError as error:
        # A CUDA build of torchvision beside a CPU build of torch, for one.
        raise MissingExtraError(
            f"{library} can't be imported with this version of torch ({error}); install matching builds"
        ) from error


def checked_name(name: str, names: list[str], source: str) -> str:
    """Return the name where the library lists it, or raise with the closest ones."""
    if name not in names:
        raise UnknownNameError(f"{source} has no network {name!r}.{did_you_mean(name, names)}")
    return name
