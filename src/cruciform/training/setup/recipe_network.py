"""The network that a recipe names: built, converted where asked, initialized; the same for the same seed."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cruciform.conversion.convert import apply_conversion_
from cruciform.conversion.planning import Rules
from cruciform.errors import ConversionError, OptionError, RunError, UnknownNameError
from cruciform.models.network import Network
from cruciform.nn.initialize import AUTO, initialize_
from cruciform.schemes import DENSE
from cruciform.sources.build_network import split_reference
from cruciform.store.directory import Base, base_of, saved_base
from cruciform.store.open_reference import is_directory, open_reference
from cruciform.training.recipe.recipe import ModelTable

TAKES_CLASSES = ("zoo", "timm", "torchvision")
"""Sources whose networks all have the option ``num_classes``."""


def build_model(
    table: ModelTable,
    *,
    classes: int,
    seed: int,
    images: Callable[[int], Tensor] | None = None,
    notice: Callable[[str], None] = lambda what: None,
) -> nn.Module:
    """Builds a network, or reads a converted one from its directory.

    Args:
        table: What the recipe says of it.
        classes: Of the data; networks are built for as many unless the recipe says otherwise.
        seed: Of its initial weights.
        images: Gives so many training images, for networks that compute something from them; left out where weights
            will be loaded.
        notice: Told what became of its convolutions, and what of a directory's weights could not be used.
    """
    if table.given:
        raise RunError(
            f"the network of this run was given by code ({table.given}), and only that can build it. In Python: "
            "train_network(RUN, RUN, model=...) returns it as it was trained, for evaluation, export and deployment"
        )
    with torch.random.fork_rng(devices=[]):  # weights are drawn on the CPU
        torch.manual_seed(seed)
        if is_directory(table.name):
            return _read(table, classes, notice)
        return _build(table, classes, images, notice)


def _read(table: ModelTable, classes: int, notice: Callable[[str], None]) -> nn.Module:
    if table.scheme or table.init:
        raise OptionError(f"{table.name} is a model directory: it has its scheme and weights, and takes no other")
    opened = open_reference(table.name, _with_classes(base_of(table.name), table.options, classes))
    if opened.reinitialized:
        names = ", ".join(opened.reinitialized)
        notice(f"{names}: of another shape in {table.name}; they are initialized as in a network that is built")
    return opened.model


def network_base(table: ModelTable, classes: int) -> Base:
    """Return how the unconverted network of a recipe is built, with the options that fit its data."""
    saved = saved_base(table.name) if is_directory(table.name) else Base(table.name)
    return Base(saved.reference, {**saved.options, **_with_classes(saved.reference, table.options, classes)})


def _with_classes(reference: str | None, options: Mapping[str, Any], classes: int) -> dict[str, Any]:
    takes = reference is not None and split_reference(reference)[0] in TAKES_CLASSES
    return {"num_classes": classes, **options} if takes else dict(options)


def _build(
    table: ModelTable, classes: int, images: Callable[[int], Tensor] | None, notice: Callable[[str], None]
) -> nn.Module:
    source, _ = split_reference(table.name)
    options = _with_classes(table.name, table.options, classes)
    if source == "zoo" and table.init:
        options["init"] = table.init
    try:
        model = open_reference(table.name, options).model
    except UnknownNameError as error:
        raise UnknownNameError(
            f"{str(error).removesuffix('.')}. A model directory serves too, but {Path(table.name).absolute()} is none; "
            "a network of your own is given in Python: train_network(recipe, run, model=...)"
        ) from None
    if images and isinstance(model, Network) and model.fitted_on:
        model.fit_(images(model.fitted_on))
    if table.scheme:
        kept = model.fitted if isinstance(model, Network) else ()
        model, report = apply_conversion_(model, Rules(table.scheme, protect=kept), init=table.init or AUTO)
        if not report.replaced and table.scheme != DENSE:
            reasons = "; ".join(dict.fromkeys(row.reason for row in report.layers)) or "it has none"
            raise ConversionError(f"the scheme {table.scheme!r} replaces no convolution of {table.name}: {reasons}")
        for what in (f"{table.name} by {table.scheme}: {report.summary()}", *report.warnings):
            notice(what)
    elif table.init and source != "zoo":
        initialize_(model, table.init)
    return model
