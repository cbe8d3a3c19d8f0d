"""How much of the saving in MACs becomes time in training? Real steps of dense and low-rank networks, in turns.

    python benchmarks/training_speed.py                 writes results/training-speed.json
    python benchmarks/training_speed.py nin             one suite only, into the same file

A step is the recipe's own (bfloat16 but for suites named so, its batch, backward pass, optimizer, slow weights), all
threads, wall time, on one batch of noise that lies in memory. The shortest of some rounds counts; the first network of
a suite is what the others are compared with. Where the time goes is shown beside.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import cifar10
import imagenette
from quiet_speeds import speed_name
from step_times import time_steps

from cruciform.measure.record import hardware, record_result, today
from cruciform.training.recipe.cookbook import load_recipe
from cruciform.training.recipe.recipe import Recipe

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
    "nin-norm": {
        name: load_recipe(recipe, [*changes, "precision=bf16"])
        for name, (recipe, changes) in cifar10.SUITES["nin-norm"].items()
    },
    "imagenette": {name: load_recipe(f"{name}_ilsvrc", imagenette.CHANGES) for name in ("vgg11_gmp", "vgg11_gmp_lr")},
}
SIDES = {"nin": 30, "nin-fp32": 30, "nin-norm": 30, "imagenette": imagenette.SIDE}  # of images; 32 elsewhere


def measure(suite: str, rounds: int) -> tuple[dict[str, float], dict[str, Any]]:
    """Times the steps of all networks of a suite in turns; returns what the texts quote, and the details."""
    side = SIDES.get(suite, 32)
    recipes = SUITES[suite]
    baseline = next(iter(recipes))
    timed = time_steps(recipes, dict.fromkeys(recipes, side), rounds)
    size = recipes[baseline].batch_size
    best = {name: min(one.seconds) for name, one in timed.items()}
    summary: dict[str, float] = {}
    details: dict[str, Any] = {}
    for name, one in timed.items():
        mac_ratio, time_ratio = one.macs / timed[baseline].macs, best[name] / best[baseline]
        summary |= {
            f"{name}_images_per_second": round(size / best[name], 1),
            f"{name}_realised": round(mac_ratio / time_ratio, 3),
        }
        details[name] = {
            "macs": one.macs,
            "side": side,
            "seconds": one.seconds,
            "shares": one.shares,
            "date": today(),
            "hardware": hardware(),
        }
        print(f"{name}: {size / best[name]:.0f} images/s, {mac_ratio:.3f} of the MACs, {time_ratio:.3f} of the time, "
              f"realised {mac_ratio / time_ratio:.2f}; {one.shares}", flush=True)  # fmt: skip
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
