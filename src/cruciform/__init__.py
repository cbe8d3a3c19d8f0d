"""cruciform: convolutional networks with low-rank filters, trained, compressed and deployed.

The public names. Each is loaded when it is first used, so that importing costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from cruciform.api.bench import BenchOptions, bench
    from cruciform.api.budget import BudgetOptions, budget
    from cruciform.api.compress import CompressOptions, compress
    from cruciform.api.convert import convert, convert_, plan_conversion
    from cruciform.api.deploy import DeployOptions, deploy, open_artifact
    from cruciform.api.diagnose import diagnose
    from cruciform.api.evaluate import evaluate
    from cruciform.api.experiments import race, sweep
    from cruciform.api.predict import PredictOptions, predict
    from cruciform.api.profile import profile
    from cruciform.api.report import report
    from cruciform.api.save import save
    from cruciform.api.shards import verify_shards, write_shards
    from cruciform.api.train import distill, list_recipes, list_runs, load_recipe, train, train_distributed
    from cruciform.data.sharding.shard_options import ShardOptions
    from cruciform.deployment.deployed import Artifact
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
    from cruciform.training.objectives.distillation import distillation_losses
    from cruciform.training.run.observer import Observer
    from cruciform.training.runtime.processes import Processes

_HOMES = {
    "Artifact": "deployment.deployed",
    "BenchOptions": "api.bench",
    "BudgetOptions": "api.budget",
    "CompositeConv": "nn.composite",
    "CompressOptions": "api.compress",
    "ConvSpec": "spec",
    "CruciformError": "errors",
    "DeployOptions": "api.deploy",
    "FilterGroup": "plan",
    "LayerPlan": "plan",
    "Observer": "training.run.observer",
    "OpenedNetwork": "networks.open_network",
    "PredictOptions": "api.predict",
    "Processes": "training.runtime.processes",
    "ShardOptions": "data.sharding.shard_options",
    "Stage": "plan",
    "bench": "api.bench",
    "budget": "api.budget",
    "compress": "api.compress",
    "convert": "api.convert",
    "convert_": "api.convert",
    "create_model": "models.zoo",
    "cross": "schemes",
    "deploy": "api.deploy",
    "diagnose": "api.diagnose",
    "distill": "api.train",
    "distillation_losses": "training.objectives.distillation",
    "evaluate": "api.evaluate",
    "initialize_": "nn.initialize",
    "list_models": "models.zoo",
    "list_recipes": "api.train",
    "list_runs": "api.train",
    "load": "store.directory",
    "load_recipe": "api.train",
    "make_plan": "schemes",
    "model_card": "models.model_card",
    "open_artifact": "api.deploy",
    "open_network": "networks.open_network",
    "plan_conversion": "api.convert",
    "predict": "api.predict",
    "profile": "api.profile",
    "race": "api.experiments",
    "report": "api.report",
    "save": "api.save",
    "sweep": "api.experiments",
    "train": "api.train",
    "train_distributed": "api.train",
    "verify_shards": "api.shards",
    "write_shards": "api.shards",
}

__all__ = [
    "Artifact",
    "BenchOptions",
    "BudgetOptions",
    "CompositeConv",
    "CompressOptions",
    "ConvSpec",
    "CruciformError",
    "DeployOptions",
    "FilterGroup",
    "LayerPlan",
    "Observer",
    "OpenedNetwork",
    "PredictOptions",
    "Processes",
    "ShardOptions",
    "Stage",
    "__version__",
    "bench",
    "budget",
    "compress",
    "convert",
    "convert_",
    "create_model",
    "cross",
    "deploy",
    "diagnose",
    "distill",
    "distillation_losses",
    "evaluate",
    "initialize_",
    "list_models",
    "list_recipes",
    "list_runs",
    "load",
    "load_recipe",
    "make_plan",
    "model_card",
    "open_artifact",
    "open_network",
    "plan_conversion",
    "predict",
    "profile",
    "race",
    "report",
    "save",
    "sweep",
    "train",
    "train_distributed",
    "verify_shards",
    "write_shards",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
