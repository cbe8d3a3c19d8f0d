"""Our own zoo as a source of networks."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from cruciform.errors import UnknownNameError
from cruciform.models.network import Network
from cruciform.models.zoo import create_model, list_models
from cruciform.sources.network_library import SOURCES, NetworkLibrary
from cruciform.sources.network_names import unknown_network


def _build(name: str, options: Mapping[str, Any]) -> nn.Module:
    if name not in list_models():
        raise UnknownNameError(unknown_network(name))
    return create_model(name, **options)


def _input_size(name: str, model: nn.Module) -> tuple[int, ...]:
    if not isinstance(model, Network):
        raise TypeError(f"{name} is not a network of the zoo")
    return model.config.input_shape


SOURCES.add("zoo", NetworkLibrary(list_models, _build, _input_size))
