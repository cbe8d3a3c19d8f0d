"""The measured times of ``front.py``: training steps, and deployed networks in each engine at each batch size.

Each is a part of its own, in which all networks are timed, interleaved, on one thread. Networks are those for 100
classes: their classifiers, the one thing that depends on the classes, have less than 0.1 % of the MACs. A warm-started
network is deployed as the one that is low-rank from the start. Its training takes steps of the dense network that it
starts as, the fit of its layers, and steps of its own.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from deployed_times import deployed_times
from front_networks import FAMILIES, LOW_RANK_AFTER, FrontNetwork, recipe_of
from step_times import STEPS, make_learner, time_steps

from cruciform.deployment.search.build import EngineSettings
from cruciform.deployment.targets.target import TARGETS
from cruciform.training.engine.low_rank_switch import SWITCH_IMAGES, LowRankSwitch
from cruciform.training.setup.recipe_network import build_model

DATA_SET, TIMED_CLASSES = "tinyimagenet100", 100
ENGINES, BATCHES = ("onnxruntime", "openvino"), (1, 16)
TRAINING = "training"
DEPLOYED = {f"{engine}_ms_b{batch}": (engine, batch) for batch in BATCHES for engine in ENGINES}
"""The engine and the batch size of each part, by the ending of its keys in the summary."""
PARTS = (TRAINING, *DEPLOYED)
EQUAL_TIME = "onnxruntime_ms_b1"
"""The part whose times networks are compared at."""
FROM_START = ["model.scheme=none", "model.low_rank_after=none"]
"""Changes that leave the dense network that a warm-started one starts as."""


@dataclass(frozen=True)
class Effort:
    """How long to measure.

    Attributes:
        rounds: Of each timing.
        search_seconds: For the fastest form of each network.
    """

    rounds: int = 9
    search_seconds: float = 60.0


def deployed_names(networks: Sequence[FrontNetwork]) -> dict[str, FrontNetwork]:
    """Return what is deployed, by name: warm-started networks are not networks of their own."""
    return {network.cold.name: network.cold for network in networks}


def is_measured(part: str, times: Mapping[str, Any], networks: Sequence[FrontNetwork]) -> bool:
    """Return whether a part has the times of all networks, of which training has those of dense starts too."""
    wanted = set(deployed_names(networks)) | {one.name for one in networks if part == TRAINING}
    return part in times and wanted <= times[part]["networks"].keys()


def time_training(networks: Sequence[FrontNetwork], effort: Effort, changes: Sequence[str] = ()) -> dict[str, Any]:
    """Return the seconds of training steps, and of the fit of warm-started networks.

    Args:
        networks: What is timed.
        effort: How long.
        changes: Of all recipes.
    """
    recipes = {name: recipe_of(one, DATA_SET, changes) for name, one in deployed_names(networks).items()}
    sides = {name: one.side for name, one in deployed_names(networks).items()}
    warm = [network for network in networks if network.warm]
    for network in warm:
        recipes[network.name] = recipe_of(network, DATA_SET, [*FROM_START, *changes])
        sides[network.name] = network.side
    timed = time_steps(recipes, sides, effort.rounds, classes=TIMED_CLASSES)
    found: dict[str, dict[str, Any]] = {name: one._asdict() for name, one in timed.items()}
    for network in warm:
        found[network.name] |= {"fit_seconds": _time_fit(network, changes), "dense_until": LOW_RANK_AFTER}
    return {"networks": found, "threads": torch.get_num_threads()}


def _time_fit(network: FrontNetwork, changes: Sequence[str]) -> float:
    """Return the seconds that fitting a warm-started network takes, on as many images of noise as a run takes."""
    recipe = recipe_of(network, DATA_SET, [*FROM_START, *changes])
    learner, _ = make_learner(recipe, network.side, classes=TIMED_CLASSES)
    switch = LowRankSwitch(FAMILIES[network.family].scheme, STEPS, recipe.batch_size)
    images = torch.randn(SWITCH_IMAGES, 3, network.side, network.side)
    start = time.perf_counter()
    switch.fit(learner, images)
    return time.perf_counter() - start


def time_deployed(
    part: str, networks: Sequence[FrontNetwork], effort: Effort, builds: Path, on_progress: Callable[[str], None]
) -> dict[str, Any]:
    """Return the milliseconds of deployed networks in one engine at one batch size.

    Args:
        part: A key of ``DEPLOYED``.
        networks: What is timed, the baseline first.
        effort: How long.
        builds: Where the fastest form of each network is kept as it is found.
        on_progress: Called with what is being done.
    """
    engine, batch = DEPLOYED[part]
    deployed = deployed_names(networks)
    settings = {
        name: EngineSettings(
            TARGETS.get(engine), (3, one.side, one.side), batch,
            rounds=effort.rounds, search_seconds=effort.search_seconds,
        )
        for name, one in deployed.items()
    }  # fmt: skip
    models = {}
    for name, one in deployed.items():  # not trained: times do not depend on weights
        models[name] = build_model(recipe_of(one, DATA_SET).model, classes=TIMED_CLASSES, seed=0).eval()
    found = deployed_times(models, settings, builds / part, on_progress)
    return {"networks": found, "target": engine, "batch": batch, "threads": 1}


def milliseconds(part: Mapping[str, Any] | None) -> dict[str, float]:
    """Return the shortest measured milliseconds of each deployed network; nothing where none was measured."""
    return {name: one["milliseconds"] for name, one in part["networks"].items()} if part else {}


def seconds_per_step(part: Mapping[str, Any] | None, network: FrontNetwork) -> float | None:
    """Return the seconds of a training step of a network, of a warm-started one as the mean over its run."""
    timed = part["networks"] if part else {}
    if network.cold.name not in timed or network.name not in timed:
        return None
    own = min(timed[network.cold.name]["seconds"])
    if not network.warm:
        return own
    dense = timed[network.name]
    return dense["dense_until"] * min(dense["seconds"]) + (1 - dense["dense_until"]) * own


def fit_seconds(part: Mapping[str, Any] | None, network: FrontNetwork) -> float:
    """Return the seconds in which the layers of a warm-started network are fitted; 0 for others."""
    return float(part["networks"][network.name].get("fit_seconds", 0.0)) if part else 0.0
