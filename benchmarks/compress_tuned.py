"""What a few epochs of fine-tuning give back to compressed networks, and what int8 takes.

Goes on from what ``compress.py`` has compressed: each network is tuned by labels and by the original's outputs, with
5,000 training images held out; then quantized for ONNX Runtime, beside the dense network. The test set is read once for
each network that is reported. What is finished is kept in build/compress; results/compress-tuned.json holds it.

    CRUCIFORM_DATA=DIR python benchmarks/compress_tuned.py                      all that is compressed
    CRUCIFORM_DATA=DIR python benchmarks/compress_tuned.py cifar_fast --budget 45 --epochs 1
"""

import argparse
import json
import statistics
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from compress import BUDGETS, SIZE, compressed_of, on_test_set, say
from compress_networks import NETWORKS, ROOT, RUNS, run_of, trained
from torch import nn

import cruciform
from cruciform.budgets.network_time import time_network
from cruciform.cli.shared.run_progress import make_observer
from cruciform.compression.finetune import finetuning_recipe
from cruciform.deployment.search.build import Build, EngineSettings, build_engine
from cruciform.deployment.search.layer_forms import forms_of_layers
from cruciform.deployment.targets.target import TARGETS
from cruciform.files import read_text, write_json
from cruciform.measure.record import record_result
from cruciform.training.engine.sample_images import prepared_batches, sample_images

RESULT, FINISHED = ROOT / "results" / "compress-tuned.json", RUNS / "finished-tuned.json"
INT8 = "onnxruntime-int8"
CALIBRATION = 300


def tune(name: str, seed: int, budget: int, epochs: int, original: nn.Module) -> nn.Module:
    """Tune a compressed network, or read the run where it is tuned already."""
    network = NETWORKS[name]
    model = cruciform.load(compressed_of(name, seed, budget), trained(name, seed))
    recipe = finetuning_recipe(cruciform.load_recipe(network.recipe, [*network.changes, f"seed={seed}"]), epochs)
    run = Path(f"{compressed_of(name, seed, budget)}-tuned-{epochs}")
    return cruciform.distill(recipe, run, model=model, teacher=original, observers=[make_observer()])


def in_int8(name: str, seed: int, networks: Mapping[str, nn.Module]) -> dict[str, dict[str, float]]:
    """Return the test accuracy in int8 and the time of each network, timed side by side."""
    run = run_of(name, seed)
    target = TARGETS.get(INT8).with_images(sample_images(run, CALIBRATION))
    setting = EngineSettings(target, SIZE)
    times = time_network({key: (model, {}) for key, model in networks.items()}, setting)
    found = {}
    for key, model in networks.items():
        with tempfile.TemporaryDirectory() as folder:
            engine = build_engine(model, Build(forms_of_layers(model, {})), setting, Path(folder))
        hits = count = 0
        for batch in prepared_batches(_test_recipe(name), "test", batch=100):
            hits += int((engine(batch.images).argmax(1) == batch.labels).sum())
            count += len(batch.labels)
        found[key] = {"top1": 100 * hits / count, "seconds": times[key].best}
    return found


def _test_recipe(name: str) -> Any:
    network = NETWORKS[name]
    return cruciform.load_recipe(network.recipe, [*network.changes, "data.holdout=0"])


def measure(name: str, seed: int, budget: int, epochs: int) -> dict[str, Any]:
    """Tune one compressed network and quantize it."""
    original = trained(name, seed).eval()
    tuned = tune(name, seed, budget, epochs, original)
    found = {
        "epochs": epochs,
        "dense": on_test_set(name, original),
        "tuned": on_test_set(name, tuned),
        "int8": in_int8(name, seed, {"dense": original, "tuned": tuned.eval()}),
    }
    say(f"{name}, seed {seed}, {budget} %: {found}")
    return found


def summarize(finished: Mapping[str, Any]) -> dict[str, float]:
    """Return the flat summary of all that is finished."""
    summary: dict[str, float] = {}
    for name in NETWORKS:
        for budget in BUDGETS:
            rows = [row for key, row in finished.items() if key.startswith(f"{name}-") and key.endswith(f"-{budget}")]
            if not rows:
                continue
            lost = [row["dense"]["top1"] - row["tuned"]["top1"] for row in rows]
            int8 = [row["dense"]["top1"] - row["int8"]["tuned"]["top1"] for row in rows]
            dense = [row["dense"]["top1"] - row["int8"]["dense"]["top1"] for row in rows]
            share = [row["int8"]["tuned"]["seconds"] / row["int8"]["dense"]["seconds"] for row in rows]
            summary[f"{name}_{budget}_tuned_seeds"] = len(rows)
            summary[f"{name}_{budget}_tuned_epochs"] = rows[0]["epochs"]
            summary[f"{name}_{budget}_tuned_loss"] = round(statistics.mean(lost), 2)
            summary[f"{name}_{budget}_int8_loss"] = round(statistics.mean(int8), 2)
            summary[f"{name}_{budget}_int8_time_of_dense_int8"] = round(statistics.mean(share), 3)
            summary[f"{name}_dense_int8_loss"] = round(statistics.mean(dense), 2)
    return summary


def main() -> None:
    parser = argparse.ArgumentParser(description="Fine-tune and quantize compressed networks.")
    parser.add_argument("networks", nargs="*", help=f"of {', '.join(NETWORKS)}; all where none is given")
    parser.add_argument("--budget", type=int, action="append", help="of 60, 45 and 35; all where none is given")
    parser.add_argument("--epochs", type=int, default=3)
    given = parser.parse_args()
    finished = json.loads(read_text(FINISHED)) if FINISHED.is_file() else {}
    for name in given.networks or NETWORKS:
        for seed in range(NETWORKS[name].seeds):
            for budget in given.budget or BUDGETS:
                key = f"{name}-{seed}-{budget}"
                if key not in finished and compressed_of(name, seed, budget).is_dir():
                    finished[key] = measure(name, seed, budget, given.epochs)
                    write_json(FINISHED, finished)
    record_result(
        RESULT,
        summary=summarize(finished),
        details=finished,
        command="python benchmarks/compress_tuned.py",
        n=len(finished),
        packages=("onnxruntime",),
    )
    print(json.dumps(summarize(finished), indent=1))


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
