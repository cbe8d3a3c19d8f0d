"""Training steps timed side by side: real steps of recipes on one batch of noise in memory, interleaved."""

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile

from cruciform.data.loader import Batch
from cruciform.measure import macs
from cruciform.training.engine.learner import Learner
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.runtime.runtime import SingleProcess
from cruciform.training.setup.recipe_network import build_model

STEPS = 500  # of a whole training
FIRST = 200  # the step that is timed first: what a recipe freezes early, as the biases of cifar_fast, is frozen by then
KINDS = {
    "convolution_backward": "convolutions, backward",
    "mkldnn_convolution": "convolutions, forward",
    "gelu": "activations",
    "relu": "activations",
    "threshold": "activations",
    "hardswish": "activations",
    "silu": "activations",
    "batch_norm": "batch norm",
    "max_pool": "poolings",
    "fill_": "filling with zeros",
    "zero_": "filling with zeros",
    "cat": "concatenations",
    "copy_": "copies",
    "add": "additions",
}


class Timed(NamedTuple):
    """The steps of a network.

    Attributes:
        macs: Of one image.
        seconds: Of each round.
        shares: Of a step's time, by kind of operation.
    """

    macs: int
    seconds: list[float]
    shares: dict[str, float]


def make_learner(recipe: Recipe, side: int, *, classes: int = 10) -> tuple[Learner, int]:
    """Return a learner of a recipe, and the MACs of its network."""
    network = build_model(recipe.model, classes=classes, seed=0)
    counted = macs.profile(network, (3, side, side)).macs
    return Learner(recipe, network, SingleProcess(torch.device("cpu"))), counted


def noise_batch(size: int, side: int, *, classes: int = 10) -> Batch:
    """Return a batch of noise as a loader returns images."""
    images = torch.randint(0, 256, (size, 3, side, side), dtype=torch.uint8).to(memory_format=torch.channels_last)
    return Batch(images, torch.randint(0, classes, (size,)), tuple(range(size)), size, size)


def where_time_goes(step: Callable[[], object]) -> dict[str, float]:
    """Return the share of a step's time that each kind of operation takes."""
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        step()
    shares: dict[str, float] = {}
    events = seen.key_averages()
    total = sum(event.self_cpu_time_total for event in events)
    for event in events:
        kind = next((kind for mark, kind in KINDS.items() if mark in event.key), "other")
        shares[kind] = shares.get(kind, 0) + event.self_cpu_time_total / total
    return {kind: round(share, 4) for kind, share in sorted(shares.items(), key=lambda item: -item[1])}


def time_steps(
    recipes: Mapping[str, Recipe], sides: Mapping[str, int], rounds: int, *, classes: int = 10
) -> dict[str, Timed]:
    """Time the steps of several recipes, interleaved, all with the batch size of the first.

    Args:
        recipes: By name.
        sides: Height and width of the images of each.
        rounds: Timed steps of each.
        classes: Of the data.
    """
    learners = {name: make_learner(recipe, sides[name], classes=classes) for name, recipe in recipes.items()}
    size = next(iter(recipes.values())).batch_size
    batches = {side: noise_batch(size, side, classes=classes) for side in sorted(set(sides.values()))}
    times: dict[str, list[float]] = {name: [] for name in learners}
    for number in range(rounds + 1):
        for name, (learner, _) in learners.items():
            start = time.perf_counter()
            learner.step(batches[sides[name]], FIRST + number, 1.0, steps=STEPS)
            if number:  # the first one warms up
                times[name].append(time.perf_counter() - start)

    def shares(name: str) -> dict[str, float]:
        return where_time_goes(lambda: learners[name][0].step(batches[sides[name]], FIRST, 1.0, steps=STEPS))

    return {name: Timed(counted, times[name], shares(name)) for name, (_, counted) in learners.items()}
