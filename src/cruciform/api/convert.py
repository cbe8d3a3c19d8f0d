"""``cruciform.convert``, ``convert_`` in place, and ``plan_conversion``, which changes nothing."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

    from cruciform.conversion.conversion_report import ConversionReport
    from cruciform.conversion.convert import Conversion
    from cruciform.conversion.planning import SchemeChoice
    from cruciform.conversion.where import Where
    from cruciform.networks.open_network import OpenedNetwork


def convert(
    model: "nn.Module | OpenedNetwork | str | Path",
    scheme: "SchemeChoice" = "lr",
    *,
    init: str = "auto",
    activation: str | None = "relu",
    where: "Where | None" = None,
    protect: Sequence[str] = (),
    input_size: Sequence[int] | None = None,
) -> "Conversion":
    """Convert a copy of a network: replace its convolutions by layers of basis filters.

    Args:
        model: An ``nn.Module``, a reference (``timm:resnet18``, a dense run, a dense model directory), or what
            ``open_network`` returns.
        scheme: As for ``plan_conversion``.
        init: How the new layers are initialized: ``auto``, a rule of ``initialize_``, or ``fit``: by least squares to
            the trained weights.
        activation: The non-linearity after the convolutions, by name, for the rule.
        where: As for ``plan_conversion``.
        protect: As for ``plan_conversion``.
        input_size: As for ``plan_conversion``. Left out for a module: one that it runs at is guessed, only to verify
            the conversion.

    Returns:
        The converted network and its conversion table. The network is run before and after on the meta device, in
        evaluation and in training mode, and must return outputs of the same shapes.

    Warns:
        UnverifiedWarning: No input size was given, and none could be guessed that the network runs at.
    """
    from cruciform.conversion.convert import convert as convert_module

    if isinstance(model, str | Path):  # opened here, so nobody else holds it: no copy is needed
        return convert_(
            model, scheme, init=init, activation=activation, where=where, protect=protect, input_size=input_size
        )
    network, size = _open(model, input_size, init)
    return convert_module(
        network, scheme, init=init, activation=activation, where=where, protect=protect, input_size=size
    )


def convert_(
    model: "nn.Module | OpenedNetwork | str | Path",
    scheme: "SchemeChoice" = "lr",
    *,
    init: str = "auto",
    activation: str | None = "relu",
    where: "Where | None" = None,
    protect: Sequence[str] = (),
    input_size: Sequence[int] | None = None,
) -> "Conversion":
    """Convert a network in place; the arguments are those of ``convert``.

    Converting again changes nothing. Where the network is itself a convolution, its replacement is returned.
    """
    from cruciform.conversion.convert import convert_ as convert_module_

    network, size = _open(model, input_size, init)
    return convert_module_(
        network, scheme, init=init, activation=activation, where=where, protect=protect, input_size=size
    )


def plan_conversion(
    model: "nn.Module | OpenedNetwork | str | Path",
    scheme: "SchemeChoice" = "lr",
    *,
    where: "Where | None" = None,
    protect: Sequence[str] = (),
    input_size: Sequence[int] | None = None,
) -> "ConversionReport":
    """Return the conversion table of a network without converting it.

    Args:
        model: As for ``convert``.
        scheme: One for all convolutions, or a mapping from name patterns to schemes; the first match counts.
        where: Which convolutions, by the predicates of ``cruciform.conversion.where``; all where left out.
        protect: Name patterns of convolutions to keep.
        input_size: Channels and spatial size of one input, ``(3, 224, 224)``, to count MACs for. Left out for a
            reference: its usual one.
    """
    from cruciform.conversion.convert import plan_conversion as plan_module

    network, size = _open(model, input_size)
    return plan_module(network, scheme, where=where, protect=protect, input_size=size)


def _open(
    model: "nn.Module | OpenedNetwork | str | Path", input_size: Sequence[int] | None, init: str = "auto"
) -> "tuple[nn.Module, Sequence[int] | None]":
    """Return a network and its input size; raise where it can't be converted as asked."""
    from torch import nn

    from cruciform.conversion.convert import FIT, converted_plans
    from cruciform.errors import ConversionError
    from cruciform.networks.open_network import resolve_network

    if isinstance(model, nn.Module):
        return model, input_size
    opened = resolve_network(model)
    if plans := converted_plans(opened.model):
        raise ConversionError(
            f"{opened.reference} is converted already: {len(plans)} of its layers are made of basis filters. Convert "
            "the dense network that it was made from"
        )
    if init == FIT and opened.origin == "name" and not opened.trained:
        raise ConversionError(
            f"{opened.reference} is built without trained weights, so there is nothing to fit. Open it with a "
            ".safetensors file of trained weights, or give a run, or a trained network of your own"
        )
    return opened.model, opened.input_size if input_size is None else input_size
