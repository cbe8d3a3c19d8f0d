"""Trained networks compressed without training, beside the weight-space spatial SVD at the same measured time.

Every figure is points of test accuracy lost at 60, 45 and 35 % of the dense network's measured ONNX Runtime time, one
thread, batch 1. Choices are made on training images: ours on unlabelled calibration images alone, the rival's ranks
by the accuracy on held-out images with one layer compressed at a time, as AIMET scores them. The test set is read once
for each network that is reported. What is finished is kept in build/compress, so that the command can be stopped and
repeated; results/compress.json holds what is finished.

    CRUCIFORM_DATA=DIR python benchmarks/compress.py                 all networks, trained first where they are not
    CRUCIFORM_DATA=DIR python benchmarks/compress.py cifar_fast      one of them
    CRUCIFORM_DATA=DIR python benchmarks/compress.py --predict       whether the predicted rise predicts the loss
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from compress_networks import NETWORKS, ROOT, RUNS, run_of, trained
from scipy.stats import spearmanr
from torch import nn

import cruciform
from cruciform.budgets.budget_plan import BudgetPlan
from cruciform.budgets.network_time import time_network
from cruciform.budgets.solver import Layer, solve
from cruciform.budgets.units.cost_unit import read_limits
from cruciform.budgets.value import kept_energy
from cruciform.compression.compress import ATTEMPTS, CompressionOptions, Compressor
from cruciform.conversion.convert import convert
from cruciform.data.transforms.whitening import cache_folder
from cruciform.deployment.search.build import EngineSettings
from cruciform.deployment.targets.target import TARGETS
from cruciform.errors import BudgetError
from cruciform.files import read_text, write_json
from cruciform.measure.record import record_result
from cruciform.nn.inspect import spec_of
from cruciform.schemes import DENSE, make_plan
from cruciform.store.directory import save
from cruciform.training.engine.sample_images import prepared_batches, sample_images

RESULT, FINISHED = ROOT / "results" / "compress.json", RUNS / "finished.json"
ESRGAN = RUNS / "esrgan" / "finished.json"  # written by compress_esrgan.py
BUDGETS = (60, 45, 35)
CALIBRATION = 2048  # training images, without their labels
SCORED = 512  # held-out images that the rival's ranks are scored on
RANDOM = 30  # random choices that predictions are compared on
SIZE = (3, 32, 32)


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def on_test_set(name: str, model: nn.Module) -> dict[str, float]:
    """Return the accuracy on the test set, in per cent, plain and with flip TTA."""
    network = NETWORKS[name]
    recipe = cruciform.load_recipe(network.recipe, [*network.changes, "data.holdout=0"])
    found = cruciform.evaluate(model, recipe=recipe).evaluation
    return {"top1": 100 * found.top1, "flip_tta": 100 * (found.top1_flip_tta or found.top1)}


class HeldOut:
    """Held-out training images of a run, and the accuracy on some of them."""

    def __init__(self, run: Path, count: int) -> None:
        parts = next(prepared_batches(run, "test", batch=count))
        self.images, self.labels = torch.from_numpy(parts.images), torch.from_numpy(parts.labels)

    def accuracy(self, model: nn.Module) -> float:
        """Return the plain accuracy, in per cent."""
        hits = 0
        with torch.no_grad():
            for images, labels in zip(self.images.split(128), self.labels.split(128), strict=True):
                hits += int(model.eval()(images).argmax(1).eq(labels).sum())
        return 100 * hits / len(self.labels)


def compressed_of(name: str, seed: int, budget: int) -> Path:
    """Return the model directory of a compressed network, which ``compress_tuned.py`` goes on from."""
    return RUNS / f"{name}-{seed}-at-{budget}"


def settings() -> EngineSettings:
    return EngineSettings(TARGETS.get("onnxruntime"), SIZE)


def prepare(name: str, seed: int, model: nn.Module) -> Compressor:
    images = torch.from_numpy(sample_images(run_of(name, seed), CALIBRATION))
    options = CompressionOptions(state=RUNS / f"{name}-{seed}-state", on_progress=_unhurried())
    return Compressor(model, images, settings(), cache_folder() / "costs", options)


def _unhurried() -> Callable[[str], None]:
    """Return a callback that says every ten seconds what is being done."""
    last = [0.0]

    def on_progress(what: str) -> None:
        if time.monotonic() - last[0] > 10:
            last[0] = time.monotonic()
            say(what)

    return on_progress


def separable_scores(model: nn.Module, compressor: Compressor, held_out: HeldOut) -> dict[str, dict[str, float]]:
    """Return the accuracy with one layer at a time replaced by its weight-space SVD, by layer and rank."""
    scores: dict[str, dict[str, float]] = {}
    dense = held_out.accuracy(model)
    for layer in compressor.survey.layers:
        ranks = [option.name for option in layer.options if option.name.startswith("sf:")]
        scores[layer.name] = {DENSE: dense} | {
            rank: held_out.accuracy(convert(model, {layer.name: rank}, init="fit", input_size=SIZE).model)
            for rank in ranks
        }
        say(f"scored {layer.name}")
    return scores


def svd_at(
    share: float,
    model: nn.Module,
    compressor: Compressor,
    scores: Mapping[str, Mapping[str, float]],
    setting: EngineSettings,
) -> Any:
    """Return the weight-space SVD of the highest total score whose measured time is within a share.

    Kinder than AIMET's threshold, which jumps over what lies between two scores: ranks are chosen by the same solver as
    ours, and of equal scores the one that keeps more of the kernel's energy.
    """
    layers = []
    for layer in compressor.survey.layers:
        weight, spec = model.get_parameter(f"{layer.name}.weight").detach(), spec_of(model.get_submodule(layer.name))
        options = []
        for option in layer.options:
            if option.name in scores[layer.name]:
                kept = kept_energy(make_plan(spec, option.name), weight)
                options.append(replace(option, value=scores[layer.name][option.name] + kept))
        layers.append(Layer(layer.name, tuple(options)))
    dense, asked = compressor.survey.dense["seconds"], share
    best: Any = None
    for _ in range(ATTEMPTS // 2):
        try:
            found = solve(layers, {"seconds": asked * dense}, fixed=compressor.survey.dense)
        except BudgetError:
            if best is None:
                raise
            break  # the cheapest ranks are not enough; the nearest that was measured counts
        mapping = {name: option.name for name, option in found.choices.items() if option.name != DENSE}
        conversion = convert(model, mapping, init="fit", input_size=setting.input_size)
        times = time_network({"dense": (model, {}), "svd": (conversion.model, {})}, setting)
        measured = times["svd"].best / times["dense"].best
        if best is None or abs(measured - share) < abs(best[1] - share):
            best = conversion.model, measured, mapping
        if abs(measured / share - 1) < 0.02:
            break
        asked *= share / measured
    return best


def measure(name: str, seed: int) -> dict[str, Any]:
    """Compress one trained network to all budgets, and its rival."""
    model = trained(name, seed).eval()
    say(f"{name}, seed {seed}: prepare")
    started = time.monotonic()
    compressor = prepare(name, seed, model)
    prepared = time.monotonic() - started
    dense = on_test_set(name, model)
    say(f"dense: {dense}")
    held_out = HeldOut(run_of(name, seed), SCORED)
    scores = separable_scores(model, compressor, held_out)
    found: dict[str, Any] = {"dense": dense, "prepare_seconds": prepared, "budgets": {}}
    for budget in BUDGETS:
        started = time.monotonic()
        ours = compressor.compress(read_limits({"time": f"{budget}%"}))
        seconds = time.monotonic() - started
        save(ours.conversion.model, compressed_of(name, seed, budget), ours.conversion.report)
        svd, share, mapping = svd_at(ours.seconds / ours.dense_seconds, model, compressor, scores, settings())
        found["budgets"][str(budget)] = {
            "ours": {
                **on_test_set(name, ours.conversion.model),
                "share": ours.seconds / ours.dense_seconds,
                "macs": ours.plan.predicted["MACs"] / ours.plan.dense["MACs"],
                "mapping": ours.plan.mapping,
                "predicted_rise": ours.rise,
                "seconds": seconds,
            },
            "svd": {**on_test_set(name, svd), "share": share, "mapping": mapping},
        }
        say(f"{budget} %: {found['budgets'][str(budget)]}")
    return found


def predict(name: str, seed: int) -> dict[str, Any]:
    """Compare the predicted rise with the accuracy that random choices really lose, on held-out images."""
    model = trained(name, seed).eval()
    compressor = prepare(name, seed, model)
    held_out = HeldOut(run_of(name, seed), 2000)
    generator = torch.Generator().manual_seed(0)
    before, points = held_out.accuracy(model), []
    dense = next(iter(compressor.survey.dense.values()))
    for number in range(RANDOM):
        chosen = {}
        for layer in compressor.survey.layers:
            options = [option for option in layer.options if option.name.startswith(("sf:", "thin:"))]
            if options:
                chosen[layer.name] = options[int(torch.randint(len(options), (), generator=generator))]
        plan = _plan_of(compressor, {name: option.name for name, option in chosen.items()})
        made = compressor.fit(plan, seconds=dense, dense_seconds=dense).conversion.model
        rise = -sum(option.value for option in chosen.values())
        points.append((rise, before - held_out.accuracy(made)))
        say(f"{name}, random choice {number + 1} of {RANDOM}: rise {rise:.3g}, lost {points[-1][1]:.2f}")
    return {"points": points, "rank_correlation": float(spearmanr(*zip(*points, strict=True)).statistic)}


def _plan_of(compressor: Compressor, mapping: Mapping[str, str]) -> BudgetPlan:
    """Return a plan of the mapping alone, for a fit that nobody reports."""
    from cruciform.budgets.budget_plan import Chosen

    layers = tuple(Chosen(name, "", scheme, "", 0.0, 1.0, 1.0, "") for name, scheme in mapping.items())
    return BudgetPlan(layers, 0.0, {}, {}, {}, (), ())


def summarize(finished: Mapping[str, Any]) -> dict[str, float]:
    """Return the flat summary of all that is finished."""
    summary: dict[str, float] = {}
    for name in NETWORKS:
        seeds = [row for key, row in finished.items() if key.startswith(f"{name}-")]
        if not seeds:
            continue
        summary[f"{name}_seeds"] = len(seeds)
        summary[f"{name}_images"] = CALIBRATION
        summary[f"{name}_dense"] = round(statistics.mean(row["dense"]["top1"] for row in seeds), 2)
        for budget in map(str, BUDGETS):
            lost = [row["dense"]["top1"] - row["budgets"][budget]["ours"]["top1"] for row in seeds]
            ahead = [row["budgets"][budget]["ours"]["top1"] - row["budgets"][budget]["svd"]["top1"] for row in seeds]
            summary[f"{name}_{budget}_untuned_loss"] = round(statistics.mean(lost), 2)
            if len(lost) > 1:
                summary[f"{name}_{budget}_untuned_loss_std"] = round(statistics.stdev(lost), 2)
            summary[f"{name}_{budget}_share"] = round(
                statistics.mean(row["budgets"][budget]["ours"]["share"] for row in seeds), 3
            )
            summary[f"{name}_{budget}_ahead_of_svd_untuned"] = round(statistics.mean(ahead), 2)
        summary[f"{name}_seconds"] = round(
            statistics.mean(row["prepare_seconds"] + row["budgets"]["60"]["ours"]["seconds"] for row in seeds)
        )
    if ESRGAN.is_file():
        for budget, row in json.loads(read_text(ESRGAN)).items():
            summary |= {f"esrgan_{budget}_{name}": round(row["ours"][name], 3) for name in ("psnr", "ssim", "share")}
            summary[f"esrgan_{budget}_psnr_ahead_of_svd"] = round(row["ours"]["psnr"] - row["svd"]["psnr"], 2)
    predictions = [row["rank_correlation"] for key, row in finished.items() if key.startswith("predict-")]
    if predictions:
        summary["sensitivity_rank_correlation"] = round(min(predictions), 3)
    return summary


def main() -> None:
    parser = argparse.ArgumentParser(description="Compress trained networks, beside the weight-space SVD.")
    parser.add_argument("networks", nargs="*", help=f"of {', '.join(NETWORKS)}; all where none is given")
    parser.add_argument("--seeds", type=int, help="how many seeds; each network's own number where left out")
    parser.add_argument("--predict", action="store_true", help="compare predictions with random choices")
    given = parser.parse_args()
    finished = json.loads(read_text(FINISHED)) if FINISHED.is_file() else {}
    for name in given.networks or NETWORKS:
        for seed in range(given.seeds or NETWORKS[name].seeds):
            key = f"predict-{name}-{seed}" if given.predict else f"{name}-{seed}"
            if key in finished:
                continue
            finished[key] = (predict if given.predict else measure)(name, seed)
            write_json(FINISHED, finished)
    summary = summarize(finished)
    record_result(
        RESULT,
        summary=summary,
        details={**finished, **({"esrgan": json.loads(read_text(ESRGAN))} if ESRGAN.is_file() else {})},
        command="python benchmarks/compress.py; python benchmarks/compress.py --predict; "
        "python benchmarks/compress_esrgan.py",
        n=len(finished),
        packages=("onnxruntime",),
    )
    print(json.dumps(summary, indent=1))


if __name__ == "__main__":
    main()
