"""cruciform: convolutional networks rebuilt from small basis filters before training.

The front door. Names are loaded when they are first used, so that importing costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from cruciform.api.convert import convert, convert_, plan_conversion
    from cruciform.api.diagnose import diagnose
    from cruciform.api.profile import profile
    from cruciform.api.save import save
    from cruciform.errors import CruciformError
    from cruciform.models.model_card import model_card
    from cruciform.models.zoo import create_model, list_models
    from cruciform.networks.open_network import OpenedNetwork, open_network
    from cruciform.nn.composite import CompositeConv
    from cruciform.nn.initialize import initialize_
    from cruciform.plan import FilterGroup, LayerPlan, Stage
    from cruciform.schemes import cross, make_plan
    from cruciform.spec import ConvSpec
    from cruciform.store.directory import load
    from cruciform.training.recipe.cookbook import load_recipe
    from cruciform.training.start import train_network

_HOMES = {
    "CompositeConv": "nn.composite",
    "ConvSpec": "spec",
    "CruciformError": "errors",
    "FilterGroup": "plan",
    "LayerPlan": "plan",
    "Stage": "plan",
    "convert": "api.convert",
    "convert_": "api.convert",
    "create_model": "models.zoo",
    "cross": "schemes",
    "diagnose": "api.diagnose",
    "initialize_": "nn.initialize",
    "list_models": "models.zoo",
    "load": "store.directory",
    "load_recipe": "training.recipe.cookbook",
    "make_plan": "schemes",
    "OpenedNetwork": "networks.open_network",
    "model_card": "models.model_card",
    "open_network": "networks.open_network",
    "plan_conversion": "api.convert",
    "profile": "api.profile",
    "save": "api.save",
    "train_network": "training.start",
}

__all__ = [
    "CompositeConv",
    "ConvSpec",
    "CruciformError",
    "FilterGroup",
    "LayerPlan",
    "OpenedNetwork",
    "Stage",
    "__version__",
    "convert",
    "convert_",
    "create_model",
    "cross",
    "diagnose",
    "initialize_",
    "list_models",
    "load",
    "load_recipe",
    "make_plan",
    "model_card",
    "open_network",
    "plan_conversion",
    "profile",
    "save",
    "train_network",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
