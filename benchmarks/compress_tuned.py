"""What a few epochs of fine-tuning give back to compressed networks, and what int8 takes.

Goes on from what ``compress.py`` has compressed: each network is tuned by labels and by the original's outputs, with
5,000 training images held out; then quantized for ONNX Runtime, beside the dense network. The test set is read once for
each network that is reported. What is finished is kept in the cache folder; results/compress-tuned.json holds it.

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
from compress import BUDGETS, PARTS, SIZE, compressed_of, on_test_set, read_compressed, say
from compress_networks import NETWORKS, OF_IMAGES, ROOT, RUNS, run_of, trained
from finished_rows import FinishedRows
from torch import nn

import cruciform
from cruciform.budgets.network_time import time_network
from cruciform.cli.shared.run_progress import make_observer
from cruciform.compression.finetune import finetuning_recipe
from cruciform.deployment.search.build import Build, EngineSettings, build_engine
from cruciform.deployment.search.layer_forms import forms_of_layers
from cruciform.deployment.targets.target import TARGETS
from cruciform.measure.record import record_result
from cruciform.training.engine.sample_images import prepared_batches, sample_images

RESULT = ROOT / "results" / "compress-tuned.json"
ROWS = FinishedRows(RUNS / "finished-tuned", RESULT)
INT8 = "onnxruntime-int8"
CALIBRATION = 300


def tune(name: str, seed: int, model: nn.Module, original: nn.Module, run: Path, epochs: int) -> nn.Module:
    """Tune a network that was made of the original, or read the run where it is tuned already."""
    network = NETWORKS[name]
    recipe = finetuning_recipe(cruciform.load_recipe(network.recipe, [*network.changes, f"seed={seed}"]), epochs)
    return cruciform.distill(recipe, run, model=model, teacher=original, observers=[make_observer()])


def tuned_of(name: str, seed: int, budget: int, epochs: int, maker: str = "ours") -> Path:
    """Return the run in which a compressed network is tuned."""
    return Path(f"{compressed_of(name, seed, budget)}-{maker}-tuned-{epochs}")


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
    made = read_compressed(name, seed, budget)
    tuned = tune(name, seed, made, original, tuned_of(name, seed, budget, epochs), epochs)
    found = {
        "epochs": epochs,
        "dense": on_test_set(name, original),
        "tuned": on_test_set(name, tuned),
        "int8": in_int8(name, seed, {"dense": original, "tuned": tuned.eval()}),
    }
    say(f"{name}, seed {seed}, {budget} %: {found}")
    return found


def summarize(finished: Mapping[str, Any]) -> dict[str, float]:
    """Return the flat summary of all that is finished: with flip TTA, and plain as int8 is."""
    summary: dict[str, float] = {}
    for name in OF_IMAGES:
        for budget in BUDGETS:
            rows = [row for key, row in finished.items() if key.startswith(f"{name}-") and key.endswith(f"-{budget}")]
            if not rows:
                continue
            longest = max(row["epochs"] for row in rows)
            rows = [row for row in rows if row["epochs"] == longest]  # earlier looks took fewer
            lost = [row["dense"]["flip_tta"] - row["tuned"]["flip_tta"] for row in rows]
            plain = [row["dense"]["top1"] - row["tuned"]["top1"] for row in rows]
            int8 = [row["dense"]["top1"] - row["int8"]["tuned"]["top1"] for row in rows]
            dense = [row["dense"]["top1"] - row["int8"]["dense"]["top1"] for row in rows]
            share = [row["int8"]["tuned"]["seconds"] / row["int8"]["dense"]["seconds"] for row in rows]
            summary[f"{name}_{budget}_tuned_seeds"] = len(rows)
            summary[f"{name}_{budget}_tuned_epochs"] = rows[0]["epochs"]
            summary[f"{name}_{budget}_tuned_loss"] = round(statistics.mean(lost), 2)
            summary[f"{name}_{budget}_tuned_loss_plain"] = round(statistics.mean(plain), 2)
            summary[f"{name}_{budget}_int8_loss"] = round(statistics.mean(int8), 2)
            summary[f"{name}_{budget}_int8_time_of_dense_int8"] = round(statistics.mean(share), 3)
            summary[f"{name}_dense_int8_loss"] = round(statistics.mean(dense), 2)
    return summary


def main() -> None:
    parser = argparse.ArgumentParser(description="Fine-tune and quantize compressed networks.")
    parser.add_argument("networks", nargs="*", help=f"of {', '.join(OF_IMAGES)}; all where none is given")
    parser.add_argument("--budget", type=int, action="append", help="of 60, 45 and 35; all where none is given")
    parser.add_argument("--seeds", type=int, help="how many seeds; each network's own number where left out")
    parser.add_argument("--epochs", type=int, default=3)
    given = parser.parse_args()
    compressed = PARTS["networks"].read()
    for name in given.networks or OF_IMAGES:
        for seed in range(given.seeds or NETWORKS[name].seeds):
            for budget in given.budget or BUDGETS:
                key = f"{name}-{seed}-{budget}"
                is_known = ROWS.read().get(key, {}).get("epochs") == given.epochs
                if not is_known and str(budget) in compressed.get(f"{name}-{seed}", {}).get("budgets", {}):
                    ROWS.write(key, measure(name, seed, budget, given.epochs))
    finished = ROWS.read()
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
