"""The network that a recipe names: built, converted where asked, initialised; the same for the same seed."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from cruciform.conversion.api import Rules, apply_conversion_
from cruciform.errors import OptionError
from cruciform.models.network import Network
from cruciform.nn.initialise import AUTO, initialise_
from cruciform.sources.build import build_network, split_reference
from cruciform.store.directory import CARD, load
from cruciform.train.recipe import ModelTable

TAKES_CLASSES = ("zoo", "timm", "torchvision")
"""Sources whose networks all have the option ``num_classes``."""


def build_model(
    table: ModelTable, *, classes: int, seed: int, images: Callable[[int], Tensor] | None = None
) -> nn.Module:
    """Builds a network.

    Args:
        table: What the recipe says of it.
        classes: Of the data; networks are built for as many unless the recipe says otherwise.
        seed: Of its initial weights.
        images: Gives so many training images, for networks that compute something from them; left out where weights
            will be loaded.
    """
    with torch.random.fork_rng(devices=[]):  # weights are drawn on the CPU
        torch.manual_seed(seed)
        if (Path(table.name) / CARD).is_file():
            if table.options or table.scheme or table.init:
                raise OptionError(f"{table.name} is a model directory: it takes no options, scheme or init")
            return load(table.name)
        return _build(table, classes, images)


def _build(table: ModelTable, classes: int, images: Callable[[int], Tensor] | None) -> nn.Module:
    source, _ = split_reference(table.name)
    options = dict(table.options)
    if source in TAKES_CLASSES:
        options.setdefault("num_classes", classes)
    if source == "zoo" and table.init:
        options["init"] = table.init
    model, size = build_network(table.name, options)
    if images and isinstance(model, Network) and model.fitted_on:
        model.fit_(images(model.fitted_on))
    if table.scheme:
        kept = model.fitted if isinstance(model, Network) else ()
        rules = Rules(table.scheme, protect=kept, input_size=size)
        model, _ = apply_conversion_(model, rules, init=table.init or AUTO)
    elif table.init and source != "zoo":
        initialise_(model, table.init)
    return model
