"""Trained networks compressed without training, beside the weight-space spatial SVD at the same measured time.

Every figure is points of test accuracy lost at 60, 45 and 35 % of the dense network's measured ONNX Runtime time, one
thread, batch 1. Choices are made on training images: ours on unlabelled calibration images alone, the rival's ranks
by the accuracy on held-out images with one layer compressed at a time, as AIMET scores them. The test set is read once
for each network that is reported. What is finished is kept in the cache folder, so that the command can be stopped and
repeated; results/compress.json holds what is finished.

    CRUCIFORM_DATA=DIR python benchmarks/compress.py                 all networks, trained first where they are not
    CRUCIFORM_DATA=DIR python benchmarks/compress.py cifar_fast      one of them
    CRUCIFORM_DATA=DIR python benchmarks/compress.py --predict       whether the predicted rise predicts the loss
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from compress_networks import NETWORKS, OF_IMAGES, PREDICTED, ROOT, RUNS, run_of, trained
from finished_rows import FinishedRows
from scipy.stats import spearmanr
from torch import nn

import cruciform
from cruciform.budgets.budget_plan import BudgetPlan, Chosen
from cruciform.budgets.measured_choice import CLOSE, choose_measured
from cruciform.budgets.plan_clock import MeasuredPlan, PlanClock
from cruciform.budgets.solving.solver import Layer
from cruciform.budgets.survey import Survey
from cruciform.budgets.units.cost_unit import Limit, read_limits
from cruciform.budgets.units.unit_seconds import SECONDS
from cruciform.budgets.value import kept_energy
from cruciform.compression.compress import CompressionOptions, Compressor
from cruciform.conversion.convert import Conversion, convert
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

RESULT, FINISHED = ROOT / "results" / "compress.json", RUNS / "finished"
WRITTEN_HERE, WRITTEN_ELSEWHERE = ("networks", "predictions"), ("esrgan", "volumes", "times")
PARTS = {part: FinishedRows(FINISHED / part, RESULT, part) for part in WRITTEN_HERE + WRITTEN_ELSEWHERE}
"""Those that are written elsewhere: by compress_esrgan.py, compress_volumes.py and compress_time.py."""
VOLUME_SCHEMES = ("planes", "cross3")
BUDGETS = (60, 45, 35)
CALIBRATION = 2048  # training images, without their labels
SCORED = 512  # held-out images that the rival's ranks are scored on
RANDOM = 30  # random choices that predictions are compared on
SIZE = (3, 32, 32)
SAME_TIME = 0.9
"""A rival that was found at less than this fraction of our time is not compared: it would have had more to spend."""


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def on_test_set(name: str, model: nn.Module) -> dict[str, float]:
    """Return the accuracy on the test set, in per cent, plain and with flip TTA, by which networks are reported."""
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


def read_compressed(name: str, seed: int, budget: int) -> nn.Module:
    """Read a compressed network; where only its recorded choice is left, convert and fit it again."""
    model, folder = trained(name, seed).eval(), compressed_of(name, seed, budget)
    if folder.is_dir():
        return cruciform.load(folder, model)
    mapping = PARTS["networks"].read()[f"{name}-{seed}"]["budgets"][str(budget)]["ours"]["mapping"]
    say(f"{name}, seed {seed}, {budget} %: fitted again")
    conversion = fit(prepare(name, seed, model), mapping)
    save(conversion.model, folder, conversion.report)
    return conversion.model


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


def separable_scores(model: nn.Module, compressor: Compressor, run: Path) -> dict[str, dict[str, float]]:
    """Return the accuracy with one layer at a time replaced by its weight-space SVD, by layer and rank."""
    kept = RUNS / f"{run.name}-scores.json"
    scores: dict[str, dict[str, float]] = json.loads(read_text(kept)) if kept.is_file() else {}
    held_out = HeldOut(run, SCORED)
    for layer in (each for each in compressor.survey.layers if each.name not in scores):
        ranks = [option.name for option in layer.options if option.name.startswith("sf:")]
        scores[layer.name] = {DENSE: held_out.accuracy(model)} | {
            rank: held_out.accuracy(convert(model, {layer.name: rank}, init="fit", input_size=SIZE).model)
            for rank in ranks
        }
        say(f"scored {layer.name}")
        write_json(kept, scores)
    return scores


def choose_svd(
    share: float,
    model: nn.Module,
    survey: Survey,
    scores: Mapping[str, Mapping[str, float]],
    setting: EngineSettings,
) -> MeasuredPlan:
    """Choose the ranks of the weight-space SVD for the highest total score in a share of the measured time.

    Kinder than AIMET's threshold, which jumps over what lies between two scores: ranks are chosen as ours are, and of
    equal scores the one that keeps more of the kernel's energy. Where no ranks are that fast, it gets more time.
    """
    layers = []
    for layer in survey.layers:
        weight, spec = model.get_parameter(f"{layer.name}.weight").detach(), spec_of(model.get_submodule(layer.name))
        options = []
        for option in layer.options:
            if option.name in scores[layer.name]:
                kept = kept_energy(make_plan(spec, option.name), weight)
                options.append(replace(option, value=scores[layer.name][option.name] + kept))
        layers.append(Layer(layer.name, tuple(options)))
    ranks, clock, found = replace(survey, layers=tuple(layers)), PlanClock(model, setting), None
    while found is None:
        with suppress(BudgetError):
            found = choose_measured(ranks, {SECONDS: Limit(share * (1 + CLOSE / 2), relative=True)}, clock)
        share *= 1.1
    return found


def measure(name: str, seed: int, found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Compress one trained network to all budgets, and its rival; go on from what was found, budget by budget.

    All that is timed comes first, so that the machine must be idle for minutes only.
    """
    found = {"budgets": {}, "choices": {}} | found
    left = [str(each) for each in BUDGETS if str(each) not in found["budgets"]]
    if not left or all("refused" in found["choices"].get(budget, {}) for budget in left):
        return
    model = trained(name, seed).eval()
    say(f"{name}, seed {seed}: prepare")
    started = time.monotonic()
    compressor = prepare(name, seed, model)
    found = {"prepare_seconds": time.monotonic() - started} | found
    for budget in (each for each in left if each not in found["choices"]):
        found["choices"][budget] = choose_both(name, seed, model, compressor, budget)
        say(f"{budget} %: {found['choices'][budget]}")
        yield found
    found = {"dense": on_test_set(name, model)} | found
    say(f"dense: {found['dense']}")
    for budget in (each for each in left if "refused" not in found["choices"][each]):
        choices, started = found["choices"][budget], time.monotonic()
        ours = fit(compressor, choices["ours"]["mapping"])
        seconds = choices["ours"]["seconds"] + time.monotonic() - started
        save(ours.model, compressed_of(name, seed, int(budget)), ours.report)
        svd = convert(model, choices["svd"]["mapping"], init="fit", input_size=SIZE).model
        found["budgets"][budget] = {
            "ours": {**on_test_set(name, ours.model), **choices["ours"], "seconds": seconds},
            "svd": {**on_test_set(name, svd), **choices["svd"]},
        }
        del found["choices"][budget]
        say(f"{budget} %: {found['budgets'][budget]}")
        yield found


def choose_both(name: str, seed: int, model: nn.Module, compressor: Compressor, budget: str) -> dict[str, Any]:
    """Choose our schemes and the rival's ranks for a budget; nothing is fitted."""
    started = time.monotonic()
    try:
        ours = compressor.choose(read_limits({"time": f"{budget}%"}))
    except BudgetError as error:
        return {"refused": str(error)}
    seconds = time.monotonic() - started
    scores = separable_scores(model, compressor, run_of(name, seed))
    svd = choose_svd(ours.share, model, compressor.survey, scores, settings())
    return {
        "ours": {
            "share": ours.share,
            "macs": ours.plan.predicted["MACs"] / ours.plan.dense["MACs"],
            "mapping": ours.plan.mapping,
            "predicted_rise": -sum(layer.value for layer in ours.plan.layers),
            "seconds": seconds,
        },
        "svd": {"share": svd.share, "mapping": svd.plan.mapping},
    }


def predict(name: str, seed: int, found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Compare the predicted rise with the accuracy that random choices really lose, on held-out images."""
    points = [tuple(point) for point in found.get("points", ())]
    if len(points) == RANDOM:
        return
    model = trained(name, seed).eval()
    compressor = prepare(name, seed, model)
    held_out = HeldOut(run_of(name, seed), 2000)
    generator = torch.Generator().manual_seed(0)
    before = held_out.accuracy(model)
    for number in range(RANDOM):
        chosen = {}
        for layer, rises in compressor.rises.items():
            options = [option for option in rises if option.startswith(("sf:", "thin:"))]
            if options:
                chosen[layer] = options[int(torch.randint(len(options), (), generator=generator))]
        rise = sum(compressor.rises[layer][option] for layer, option in chosen.items())
        if number < len(points):
            points[number] = rise, points[number][1]  # the loss was measured before
            continue
        made = fit(compressor, chosen).model
        points.append((rise, before - held_out.accuracy(made)))
        say(f"{name}, random choice {number + 1} of {RANDOM}: rise {rise:.3g}, lost {points[-1][1]:.2f}")
        yield {"points": points}


def fit(compressor: Compressor, mapping: Mapping[str, str]) -> Conversion:
    """Convert a network by given schemes, and fit it; nothing is timed."""
    layers = tuple(Chosen(name, "", scheme, "", 0.0, 1.0, 1.0, "") for name, scheme in mapping.items())
    plan = BudgetPlan(layers, 0.0, {}, {}, {}, (), ())
    return compressor.fit(MeasuredPlan(plan, seconds=1.0, dense_seconds=1.0)).conversion


def summarize(finished: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Return the flat summary of all that is finished, part by part."""
    summary: dict[str, float] = {}
    for name in OF_IMAGES:
        rows = [row for key, row in finished["networks"].items() if key.startswith(f"{name}-")]
        most = max((len(row["budgets"]) for row in rows), default=0)
        seeds = [row for row in rows if len(row["budgets"]) == most]  # all means are over the same seeds
        if not most:
            continue
        summary[f"{name}_seeds"] = len(seeds)
        summary[f"{name}_images"] = CALIBRATION
        summary[f"{name}_dense"] = round(statistics.mean(row["dense"]["flip_tta"] for row in seeds), 2)
        summary[f"{name}_dense_plain"] = round(statistics.mean(row["dense"]["top1"] for row in seeds), 2)
        for budget in map(str, BUDGETS):
            at = [(row["dense"], row["budgets"][budget]) for row in seeds if budget in row["budgets"]]
            if not at:
                continue
            shares = [(found["ours"]["share"], found["svd"]["share"]) for _, found in at]
            for way, suffix in (("flip_tta", ""), ("top1", "_plain")):
                lost = [dense[way] - found["ours"][way] for dense, found in at]
                ahead = [found["ours"][way] - found["svd"][way] for _, found in at]
                summary[f"{name}_{budget}_untuned_loss{suffix}"] = round(statistics.mean(lost), 2)
                if len(lost) > 1:
                    summary[f"{name}_{budget}_untuned_loss{suffix}_std"] = round(statistics.stdev(lost), 2)
                if all(svd >= SAME_TIME * ours for ours, svd in shares):
                    summary[f"{name}_{budget}_ahead_of_svd_untuned{suffix}"] = round(statistics.mean(ahead), 2)
            summary[f"{name}_{budget}_share"] = round(statistics.mean(ours for ours, _ in shares), 3)
        summary[f"{name}_seconds"] = round(
            statistics.mean(row["prepare_seconds"] + row["budgets"]["60"]["ours"]["seconds"] for row in seeds)
        )
    for budget, row in finished["esrgan"].items():
        summary |= {f"esrgan_{budget}_{name}": round(row["ours"][name], 3) for name in ("psnr", "ssim", "share")}
        if row["svd"] is not None:
            summary[f"esrgan_{budget}_psnr_ahead_of_svd"] = round(row["ours"]["psnr"] - row["svd"]["psnr"], 2)
    summary |= summarize_volumes(finished["volumes"])
    for name, row in finished["times"].items():
        summary |= {f"{name}_seconds": round(row["seconds"]), f"{name}_images": row["images"]}
    predicted = [row["points"] for row in finished["predictions"].values() if len(row["points"]) == RANDOM]
    if predicted:
        summary["sensitivity_networks"] = len(predicted)
        summary["sensitivity_rank_correlation"] = round(
            min(float(spearmanr(*zip(*points, strict=True)).statistic) for points in predicted), 3
        )
    return summary


def summarize_volumes(rows: Mapping[str, Any]) -> dict[str, float]:
    """Return the part of the summary on volumes; nothing where none is finished."""
    if not rows:
        return {}
    summary: dict[str, float] = {"volumes_seeds": len(rows)}
    seeds = list(rows.values())
    summary["volumes_dense_auc"] = round(statistics.mean(row["dense"] for row in seeds), 4)
    for scheme in VOLUME_SCHEMES:
        for key in ("ours", "scheme", "weights", "svd"):
            summary[f"volumes_{scheme}_{key}_auc"] = round(statistics.mean(row[scheme][key] for row in seeds), 4)
        lost = [row["dense"] - row[scheme]["ours"] for row in seeds]
        summary[f"volumes_{scheme}_untuned_loss"] = round(statistics.mean(lost), 4)
        if len(lost) > 1:
            summary[f"volumes_{scheme}_untuned_loss_std"] = round(statistics.stdev(lost), 4)
        for key in ("macs", "ours_share"):
            name = key.removeprefix("ours_")
            summary[f"volumes_{scheme}_{name}"] = round(statistics.mean(row[scheme][key] for row in seeds), 3)
    return summary


def main() -> None:
    parser = argparse.ArgumentParser(description="Compress trained networks, beside the weight-space SVD.")
    parser.add_argument("networks", nargs="*", help=f"of {', '.join(OF_IMAGES)}; all where none is given")
    parser.add_argument("--seeds", type=int, help="how many seeds; each network's own number where left out")
    parser.add_argument("--predict", action="store_true", help="compare predictions with random choices")
    given = parser.parse_args()
    for name in given.networks or (PREDICTED if given.predict else OF_IMAGES):
        for seed in range(given.seeds or NETWORKS[name].seeds):
            part, work = (PARTS["predictions"], predict) if given.predict else (PARTS["networks"], measure)
            key = f"{name}-{seed}"
            for row in work(name, seed, part.read().get(key, {})):
                part.write(key, row)
    finished = {name: part.read() for name, part in PARTS.items()}
    summary = summarize(finished)
    record_result(
        RESULT,
        summary=summary,
        details=finished,
        command="python benchmarks/compress.py; python benchmarks/compress.py --predict; "
        "python benchmarks/compress_esrgan.py; python benchmarks/compress_volumes.py; "
        "python benchmarks/compress_time.py",
        n=sum(map(len, finished.values())),
        packages=("onnxruntime",),
    )
    print(json.dumps(summary, indent=1))


if __name__ == "__main__":
    main()
