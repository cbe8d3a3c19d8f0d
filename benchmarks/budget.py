"""Do budgets hold, does a mixture beat one scheme for all layers, and does the proxy tell the truth?

    python benchmarks/budget.py times           ONNX Runtime, batch 1, one thread; writes results/budget.json
    CRUCIFORM_DATA=DIR python benchmarks/budget.py proxy     points of a front, trained on CIFAR-10; into the same file

times: for each network, plans for shares of the dense time, and for the measured times of one scheme everywhere. All
networks of a comparison are timed in turns with the dense one; a predicted and a measured time are compared as shares
of the dense time of their own moment. proxy: the last 5,000 training images judge; two seeds.
"""

import argparse
import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import nn

from cruciform.budgets.budget_plan import BudgetPlan, choose
from cruciform.budgets.network_time import time_network
from cruciform.budgets.survey import Survey, Valuation, survey_network
from cruciform.budgets.units.cost_unit import Limit
from cruciform.budgets.units.unit_seconds import SECONDS
from cruciform.cli.shared.progress import measuring
from cruciform.cli.shared.run_progress import make_observer
from cruciform.conversion.convert import convert
from cruciform.data.transforms.whitening import cache_folder
from cruciform.deployment.bench.bench import prefixed
from cruciform.deployment.search.build import EngineSettings
from cruciform.deployment.search.choose import ProgressCallback
from cruciform.deployment.search.layer_forms import Form
from cruciform.deployment.targets.target import TARGETS
from cruciform.errors import BudgetError
from cruciform.measure.record import record_result
from cruciform.models.zoo import create_model
from cruciform.sources.build_network import build_network
from cruciform.training.experiments.race import Contestant, run_race
from cruciform.training.recipe.cookbook import load_recipe

RESULT = Path(__file__).parents[1] / "results" / "budget.json"
NETWORKS = {
    "vgg11_gmp": (3, 224, 224),
    "torchvision:resnet18": (3, 224, 224),
    "torchvision:resnet50": (3, 224, 224),
    "monai:ResNet18-3d": (1, 48, 48, 48),
}
SHARES = (0.4, 0.6, 0.8)
UNIFORM = ("lr", "lr-join", "lr-join-wfull")
ROUNDS = 15
EQUAL = 1.01  # times that differ by less are equal
POINTS, EPOCHS, SEEDS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0), 3, 2
Candidate = tuple[nn.Module, Mapping[str, Form]]


def uniform_plan(survey: Survey, scheme: str) -> dict[str, Any]:
    """Returns what one scheme comes to, in every layer that can have it."""
    chosen = {
        layer.name: next(option for option in layer.options if option.name == scheme)
        for layer in survey.layers
        if scheme in survey.tables[layer.name].costs
    }
    most = sum(layer.weight for layer in survey.layers)
    value = sum(layer.weight * (chosen[layer.name].value if layer.name in chosen else 1) for layer in survey.layers)
    seconds = survey.dense[SECONDS] + sum(option.costs[SECONDS] for option in chosen.values())
    forms = {name: survey.tables[name].costs[scheme].form for name in chosen}
    return {"mapping": dict.fromkeys(chosen, scheme), "forms": forms, "value": value / most, "seconds": seconds}


def build(model: nn.Module, mapping: Mapping[str, str], forms: Mapping[str, Any], size: tuple[int, ...]) -> Candidate:
    """Returns a converted network with the forms of its layers."""
    return (convert(model, dict(mapping), input_size=size).model if mapping else model), forms


def examine(name: str, size: tuple[int, ...], on_progress: ProgressCallback) -> dict[str, Any]:
    """Plans, builds and times the variants of a network."""
    torch.manual_seed(0)
    model = create_model(name) if name == "vgg11_gmp" else build_network(name, {})[0]
    setting = EngineSettings(TARGETS.get("onnxruntime"), size, rounds=ROUNDS)
    survey = survey_network(
        model, setting, Valuation(), cache_folder() / "costs", on_progress=prefixed(on_progress, name)
    )
    rows: list[dict[str, Any]] = []
    candidates: dict[str, Candidate] = {"dense": (model, {})}
    for share in SHARES:
        asked = f"{share:.0%} of the time"
        try:
            plan = choose(survey, {SECONDS: Limit(share, relative=True)})
        except BudgetError as error:
            rows.append({"network": name, "asked": asked, "share": share, "refused": str(error)})
            continue
        candidates[asked] = build(model, plan.mapping, plan.forms, size)
        rows.append({"network": name, "asked": asked, "share": share, **_of_plan(plan)})
    for scheme in UNIFORM:
        one = uniform_plan(survey, scheme)
        candidates[scheme] = build(model, one["mapping"], one["forms"], size)
        predicted = one["seconds"] / survey.dense[SECONDS]
        rows.append({"network": name, "asked": scheme, "value": one["value"], "predicted": predicted})
    on_progress(f"{name}: whole networks")
    times = {key: timing.best for key, timing in time_network(candidates, setting).items()}
    for row in rows:
        if "refused" not in row:
            row["measured"] = times[row["asked"]] / times["dense"]
    mixed = [_mixed(row, model, survey, setting) for row in rows[-len(UNIFORM) :]]
    return {"network": name, "dense_milliseconds": 1e3 * times["dense"], "rows": [*rows, *mixed],
            "problems": survey.problems}  # fmt: skip


def _mixed(uniform: dict[str, Any], model: nn.Module, survey: Survey, setting: EngineSettings) -> dict[str, Any]:
    """Finds the best mixture that takes no longer than one scheme everywhere, timed beside it."""
    scheme, limit = uniform["asked"], uniform["measured"]
    everywhere = uniform_plan(survey, scheme)
    quickest = sum(min(option.costs[SECONDS] for option in layer.options) for layer in survey.layers)
    least = 1 + quickest / survey.dense[SECONDS] + 1e-9
    for _ in range(3):
        plan = choose(survey, {SECONDS: Limit(max(limit, least), relative=True)})
        candidates = {
            "dense": (model, {}),
            "uniform": build(model, everywhere["mapping"], everywhere["forms"], setting.input_size),
            "mixed": build(model, plan.mapping, plan.forms, setting.input_size),
        }
        times = {key: timing.best for key, timing in time_network(candidates, setting).items()}
        if times["mixed"] <= EQUAL * times["uniform"]:
            break
        limit *= times["uniform"] / times["mixed"]  # the prediction was too hopeful by so much
    return {
        "network": uniform["network"],
        "asked": f"no longer than {scheme}",
        **_of_plan(plan),
        "measured": times["mixed"] / times["dense"],
        "uniform_measured": times["uniform"] / times["dense"],
        "uniform_value": everywhere["value"],
        "beats": times["mixed"] <= EQUAL * times["uniform"] and plan.value > everywhere["value"],
    }


def _of_plan(plan: BudgetPlan) -> dict[str, Any]:
    predicted = plan.predicted[SECONDS] / plan.dense[SECONDS]
    return {"value": plan.value, "predicted": predicted, "mapping": plan.mapping}


def measure_times(known: dict[str, Any]) -> list[dict[str, Any]]:
    """Examines all networks; those that are known already are not examined again."""
    found = [one for one in known.get("times", []) if one["network"] in NETWORKS]
    with measuring() as on_progress:
        for name, size in NETWORKS.items():
            if name not in {one["network"] for one in found}:
                found.append(examine(name, size, on_progress))
                record("times", found)
    return found


def train_points(known: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """Trains points of the front of ``cifar_fast``."""
    model, size = create_model("cifar_fast"), (3, 32, 32)
    setting = EngineSettings(TARGETS.get("onnxruntime"), size, batch=16, rounds=ROUNDS)
    rows: list[dict[str, Any]] = known.get("proxy", [])
    with measuring() as on_progress:
        survey = survey_network(model, setting, Valuation(), cache_folder() / "costs", on_progress=on_progress)
    contestants, plans = [], {}
    for share in POINTS:
        plan = choose(survey, {SECONDS: Limit(share, relative=True)})
        schemes = [[plan.mapping.get(f"blocks.block{block}.convs.{place}", "full") for place in (0, 1)]
                   for block in (1, 2, 3)]  # fmt: skip
        name = f"{share:.0%} of the time"
        changes = [f"model.options.schemes={json.dumps(schemes)}", "data.holdout=5000", f"epochs={EPOCHS}",
                   "precision=bf16"]  # fmt: skip
        contestants.append(Contestant(name, load_recipe("cifar_fast_cifar10", changes)))
        plans[name] = {"value": plan.value, "predicted": plan.predicted[SECONDS] / plan.dense[SECONDS],
                       "schemes": schemes}  # fmt: skip
    done = {(row["asked"], row["seed"]) for row in rows}
    for seed in range(SEEDS):
        wanted = [one for one in contestants if (one.name, seed) not in done]
        for finish in run_race(wanted, [seed], folder, observe=make_observer):
            rows.append({"asked": finish.name, "seed": seed, **plans[finish.name], "mmacs": finish.macs / 1e6,
                         "accuracy": 100 * finish.top1, "accuracy_mirrored": 100 * (finish.top1_flip_tta or 0),
                         "seconds": finish.seconds})  # fmt: skip
            record("proxy", rows)
    return rows


def summarize(details: dict[str, Any]) -> dict[str, float]:
    """Returns what the texts quote."""
    summary: dict[str, float] = {}
    if details.get("times"):
        rows = [
            row for one in details["times"] for row in one["rows"] if "measured" in row and row["asked"] not in UNIFORM
        ]
        errors = [abs(row["predicted"] / row["measured"] - 1) for row in rows]
        beaten = [all(row.get("beats", True) for row in one["rows"]) for one in details["times"]]
        asked = [abs(row["measured"] - row["share"]) for row in rows if "share" in row]
        summary |= {
            "networks": len(details["times"]),
            "solutions": len(rows),
            "median_error": round(statistics.median(errors), 4),
            "worst_error": round(max(errors), 4),
            "worst_miss_of_share": round(max(asked), 4),
            "mixed_beats_uniform": sum(beaten),
        }
    if details.get("proxy"):
        points: dict[str, list[dict[str, Any]]] = {}
        for row in details["proxy"]:
            points.setdefault(row["asked"], []).append(row)
        values = [rows[0]["value"] for rows in points.values()]
        reached = [float(np.mean([row["accuracy"] for row in rows])) for rows in points.values()]
        summary |= {
            "proxy_points": len(points),
            "proxy_seeds": min(map(len, points.values())),
            "proxy_rank_correlation": round(float(spearmanr(values, reached).statistic), 3),
        }
    return summary


def recorded() -> dict[str, Any]:
    """Returns what is known so far."""
    return json.loads(RESULT.read_text("utf-8"))["details"] if RESULT.is_file() else {}


def record(part: str, rows: list[dict[str, Any]]) -> None:
    """Writes a part of what is known; the other part may have been written by another process meanwhile."""
    details = {**recorded(), part: rows}
    record_result(
        RESULT,
        summary=summarize(details),
        details=details,
        command="python benchmarks/budget.py times; CRUCIFORM_DATA=DIR python benchmarks/budget.py proxy",
        n=ROUNDS,
        packages=("onnxruntime", "scipy"),
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=("times", "proxy"))
    parser.add_argument("--runs", type=Path, default=Path("runs/budget"))
    given = parser.parse_args()
    known = recorded()
    if given.part == "times":
        measure_times(known)
    else:
        train_points(known, given.runs)
    print(json.dumps(json.loads(RESULT.read_text("utf-8"))["summary"], indent=2))


if __name__ == "__main__":
    main()
