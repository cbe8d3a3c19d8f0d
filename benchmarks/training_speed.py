"""How much of the saving in MACs becomes time in training? Real steps of dense and low-rank networks, in turns.

    python benchmarks/training_speed.py                 writes results/training-speed.json
    python benchmarks/training_speed.py nin             one suite only, into the same file

A step is the recipe's own (bfloat16 but for suites named so, its batch, backward pass, optimizer, slow weights), all
threads, wall time, on one batch of noise that lies in memory. The shortest of some rounds counts; the first network of
a suite is what the others are compared with. Where the time goes is shown beside.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import cifar10
import imagenette
import torch
from quiet_speeds import speed_name
from torch.profiler import ProfilerActivity, profile

from cruciform.data.loader import Batch
from cruciform.measure import macs
from cruciform.measure.record import hardware, record_result, today
from cruciform.training.engine.learner import Learner
from cruciform.training.recipe.cookbook import load_recipe
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.runtime.runtime import SingleProcess
from cruciform.training.setup.recipe_network import build_model

RESULT = Path(__file__).parents[1] / "results" / "training-speed.json"
FAST = ("cifar_fast", "cifar_fast_lr", "cifar_fast_cross", "cifar_fast_lr3", "cifar_fast_lr3_wide")
SUITES: dict[str, dict[str, Recipe]] = {
    "fast": {name: load_recipe(f"{name}_cifar10", ["precision=bf16"]) for name in FAST},
    "fast-fp32": {  # for processors that only emulate bfloat16
        speed_name(name, "fp32"): load_recipe(f"{name}_cifar10", ["precision=fp32"])
        for name in (cifar10.DENSE, cifar10.LOW_RANK)
    },
    "nin-fp32": {
        speed_name(name, "fp32"): load_recipe(recipe, [*changes, "precision=fp32"])
        for name, (recipe, changes) in cifar10.SUITES["nin"].items()
    },
    "nin": {name: load_recipe(recipe, changes) for name, (recipe, changes) in cifar10.SUITES["nin"].items()},
    "imagenette": {name: load_recipe(f"{name}_ilsvrc", imagenette.CHANGES) for name in ("vgg11_gmp", "vgg11_gmp_lr")},
}
SIDES = {"nin": 30, "nin-fp32": 30, "imagenette": imagenette.SIDE}  # of images; 32 elsewhere
STEPS = 500  # of a whole training: the first layer's biases have stopped learning by step 200
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


def make_learner(recipe: Recipe, side: int) -> tuple[Learner, int]:
    """Returns a learner of a recipe, and the MACs of its network."""
    network = build_model(recipe.model, classes=10, seed=0)
    counted = macs.profile(network, (3, side, side)).macs
    return Learner(recipe, network, SingleProcess(torch.device("cpu"))), counted


def where_time_goes(step: Any) -> dict[str, float]:
    """Returns the share of a step's time that each kind of operation takes."""
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        step()
    shares: dict[str, float] = {}
    events = seen.key_averages()
    total = sum(event.self_cpu_time_total for event in events)
    for event in events:
        kind = next((kind for mark, kind in KINDS.items() if mark in event.key), "other")
        shares[kind] = shares.get(kind, 0) + event.self_cpu_time_total / total
    return {kind: round(share, 4) for kind, share in sorted(shares.items(), key=lambda item: -item[1])}


def measure(suite: str, rounds: int) -> tuple[dict[str, float], dict[str, Any]]:
    """Times the steps of all networks of a suite in turns; returns what the texts quote, and the details."""
    side = SIDES.get(suite, 32)
    learners = {name: make_learner(recipe, side) for name, recipe in SUITES[suite].items()}
    baseline = next(iter(learners))
    size = learners[baseline][0].recipe.batch_size
    images = torch.randint(0, 256, (size, 3, side, side), dtype=torch.uint8).to(memory_format=torch.channels_last)
    batch = Batch(images, torch.randint(0, 10, (size,)), tuple(range(size)), size, size)
    times: dict[str, list[float]] = {name: [] for name in learners}
    for number in range(rounds + 1):
        for name, (learner, _) in learners.items():
            start = time.perf_counter()
            learner.step(batch, 200 + number, 1.0, steps=STEPS)
            if number:  # the first one warms up
                times[name].append(time.perf_counter() - start)
    best = {name: min(values) for name, values in times.items()}
    summary: dict[str, float] = {}
    details: dict[str, Any] = {}
    for name, (learner, counted) in learners.items():
        mac_ratio, time_ratio = counted / learners[baseline][1], best[name] / best[baseline]
        summary |= {
            f"{name}_images_per_second": round(size / best[name], 1),
            f"{name}_realised": round(mac_ratio / time_ratio, 3),
        }
        profiled = where_time_goes(lambda learner=learner: learner.step(batch, 200, 1.0, steps=STEPS))
        details[name] = {
            "macs": counted,
            "side": side,
            "seconds": times[name],
            "shares": profiled,
            "date": today(),
            "hardware": hardware(),
        }
        print(f"{name}: {size / best[name]:.0f} images/s, {mac_ratio:.3f} of the MACs, {time_ratio:.3f} of the time, "
              f"realised {mac_ratio / time_ratio:.2f}; {profiled}", flush=True)  # fmt: skip
    return summary, details


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("suites", nargs="*", default=list(SUITES))
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    known = json.loads(RESULT.read_text("utf-8")) if RESULT.is_file() else {"summary": {}, "details": {}}
    for suite in given.suites:
        summary, details = measure(suite, given.rounds)
        known = {"summary": {**known["summary"], **summary}, "details": {**known["details"], **details}}
        record_result(
            RESULT,
            summary=known["summary"],
            details=known["details"],
            command="python benchmarks/training_speed.py",
            n=given.rounds,
        )


if __name__ == "__main__":
    main()
