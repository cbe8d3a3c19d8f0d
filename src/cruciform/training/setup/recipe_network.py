"""The network of a recipe: built, converted, initialized; deterministic for a seed."""

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
    notice: Callable[[str], None] = lambda message: None,
) -> nn.Module:
    """Build a network, or load one from its model directory.

    Args:
        table: The model table of the recipe. One that has ``low_rank_after`` is built as it is after the switch;
            ``table.at_start()`` is the dense network before it.
        classes: Number of classes of the data; networks are built for it unless the recipe sets another.
        seed: Of its initial weights.
        images: Returns a number of training images, for networks that are fitted to them; None where weights will be
            loaded.
        notice: Called with a summary of the conversion, and with the weights of a directory that could not be used.
    """
    if table.python_object:
        raise RunError(
            f"the network of this run was built in Python ({table.python_object}) and can't be rebuilt from its "
            "recipe. cruciform.train(RUN, RUN, model=...) returns it trained, for evaluation, export and deployment"
        )
    with torch.random.fork_rng(devices=[]):  # weights are drawn on the CPU
        torch.manual_seed(seed)
        if is_directory(table.name):
            return _read(table, classes, notice)
        return _build(table, classes, images, notice)


def _read(table: ModelTable, classes: int, notice: Callable[[str], None]) -> nn.Module:
    if table.low_rank_after is not None:
        raise OptionError(
            f"model.low_rank_after={table.low_rank_after:g} starts from scratch, but {table.name} is a model directory "
            "with trained weights: compress it instead, or set model.low_rank_after=none and model.scheme=none"
        )
    if table.scheme or table.init:
        raise OptionError(
            f"{table.name} is a model directory with its own scheme and weights; set model.scheme=none, model.init=none"
        )
    opened = open_reference(table.name, _with_classes(base_of(table.name), table.options, classes))
    if opened.reinitialized:
        names = ", ".join(opened.reinitialized)
        notice(f"{names}: the weights in {table.name} have another shape; they are initialized from scratch")
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
            f"{str(error).removesuffix('.')}. {Path(table.name).absolute()} is not a model directory either. To train "
            "your own network: cruciform.train(recipe, run, model=...)"
        ) from None
    if images and isinstance(model, Network) and model.fitted_on:
        model.fit_(images(model.fitted_on))
    if table.scheme:
        kept = model.fitted if isinstance(model, Network) else ()
        model, report = apply_conversion_(model, Rules(table.scheme, protect=kept), init=table.init or AUTO)
        if not report.replaced and table.scheme != DENSE:
            reasons = "; ".join(dict.fromkeys(row.reason for row in report.layers)) or "it has no convolutions"
            raise ConversionError(f"the scheme {table.scheme!r} replaces no convolution of {table.name}: {reasons}")
        for message in (f"converted {table.name} by {table.scheme}: {report.summary()}", *report.warnings):
            notice(message)
    elif table.init and source != "zoo":
        initialize_(model, table.init)
    return model
