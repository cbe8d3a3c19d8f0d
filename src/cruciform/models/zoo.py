"""The zoo: create networks by name. A new family is one file of this package, which registers its networks."""

from dataclasses import fields, replace
from typing import Any

import torch

from cruciform.errors import OptionError
from cruciform.models.network import MODELS, Network, NetworkConfig
from cruciform.nn.initialize import initialize_
from cruciform.registry import did_you_mean


def model_config(name: str, **options: Any) -> NetworkConfig:
    """Return the config of a network, with some of its options changed."""
    config = MODELS.get(name)
    known = [field.name for field in fields(config)]
    for option in options:
        if option not in known:
            raise OptionError(
                f"{name} has no option {option!r}.{did_you_mean(option, known)} Its options: {', '.join(known)}"
            )
    return replace(config, **options)


def create_model(
    name: str, *, init: str | None = None, generator: torch.Generator | None = None, **options: Any
) -> Network:
    """Build a network of the zoo, initialized to train.

    Args:
        name: One of ``list_models()``.
        init: The rule of initialization, see ``cruciform.initialize_``; left out: the network's own.
        generator: The source of the initial weights.
        **options: Changes to its config, such as ``num_classes=10`` or ``stride=2``; others are refused.
    """
    network = model_config(name, **options).build()
    rule = init or network.rule
    initialize_(network, rule, exceptions=network.exceptions, siblings=network.siblings, generator=generator)
    for layer, value in network.biases.items():
        torch.nn.init.constant_(network.get_parameter(f"{layer}.bias"), value)
    return network


def list_models() -> list[str]:
    """Return the names of all networks of the zoo, in alphabetical order."""
    return sorted(MODELS.names())
