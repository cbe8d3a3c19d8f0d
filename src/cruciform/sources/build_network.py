"""Build a network by reference: ``timm:resnet18``, ``torchvision:resnet18``, ``monai:UNet-3d``, or ``vgg11_gmp``.

Networks of other libraries take one more option, ``convolutions``: with ``separable or full`` they are built of
efficient layers. The families of our zoo have options of their own for that.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import nn

from cruciform.errors import CruciformError, OptionError, first_line
from cruciform.sources import monai, own_zoo, timm, torchvision  # noqa: F401
from cruciform.sources.efficient_networks import CONVOLUTIONS_OPTION, replace_convolutions_
from cruciform.sources.network_library import SOURCES

FETCHING = ("pretrained", "weights", "checkpoint", "cache_dir")
"""How names of options begin by which libraries fetch weights or read files of them."""


class Built(NamedTuple):
    """A network and its input size."""

    model: nn.Module
    input_size: tuple[int, ...]


def split_reference(reference: str) -> tuple[str, str]:
    """Return (source, name); without a source it is of our zoo."""
    source, colon, name = reference.partition(":")
    return (source, name) if colon else ("zoo", reference)


def usual_preprocessing(reference: str, model: nn.Module) -> dict[str, Any] | None:
    """Return the preprocessing of a network, where its library has it."""
    return SOURCES.get(split_reference(reference)[0]).preprocessing(model)


def build_network(reference: str, options: Mapping[str, Any] | None = None) -> Built:
    """Build a network without trained weights.

    Args:
        reference: Source and name, ``timm:resnet18``.
        options: What else its source takes, such as ``{"num_classes": 10}``, and ``convolutions``.
    """
    source, name = split_reference(reference)
    library = SOURCES.get(source)
    fetching = sorted(option for option in options or {} if option.startswith(FETCHING))
    if fetching:
        raise OptionError(
            f"{reference}: networks are built without trained weights, so {', '.join(fetching)} can't be given; load "
            "weights into the network yourself"
        )
    own = dict(options or {})
    convolutions = own.pop(CONVOLUTIONS_OPTION, None) if source != "zoo" else None
    try:
        model = library.build(name, own)
    except CruciformError:
        raise
    except Exception as error:  # a library that is given what it does not expect may raise anything
        if not own:
            raise
        raise OptionError(f"{reference} can't be built with {own!r:.200}: {first_line(error)}") from error
    if convolutions is not None:
        model = replace_convolutions_(model, convolutions)
    return Built(model, library.input_size(name, model))
