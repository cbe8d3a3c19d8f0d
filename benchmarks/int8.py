"""What 8 bits cost in accuracy, and save in time: a trained run in PyTorch and OpenVINO, in 32 bits and quantized.

Ranges are learnt from the first 300 training images; accuracy is that on the whole test set, the images prepared as
the run's own evaluation prepares them. Times are of one thread, all engines in turns on the same test images, the
shortest of some rounds; they are taken again where OpenVINO in 32 bits drifts by more than a tenth. Every layer of
basis filters has the same form in all engines.

    python benchmarks/int8.py RUN        writes results/int8.json
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from cruciform.deployment.search.build import Build, EngineSettings, build_engine
from cruciform.deployment.search.clock import Timing, time_engines
from cruciform.deployment.search.layer_forms import Form, composite_layers
from cruciform.deployment.targets.target import TARGETS, Engine
from cruciform.measure.record import record_result
from cruciform.training.engine.sample_images import Prepared, prepared_batches, sample_images
from cruciform.training.engine.trained_run import trained_network
from cruciform.training.run.run import Run

RESULT = Path(__file__).parents[1] / "results" / "int8.json"
BASELINE = "openvino"
ENGINES = ("torch", "aotinductor", BASELINE, "openvino-int8", "torch-int8")
BATCHES = (1, 16)
CALIBRATION, AT_ONCE = 300, 250
FORM: Form = "tail"
MOST_DRIFT, ATTEMPTS = 0.10, 5


def build(model: nn.Module, name: str, images: NDArray[Any], folder: Path) -> Engine:
    """Returns a network in an engine."""
    setting = EngineSettings(TARGETS.get(name).with_images(images), images.shape[1:])
    return build_engine(model, Build(dict.fromkeys(composite_layers(model), FORM)), setting, folder)


def outputs(name: str, engine: Engine, samples: Prepared) -> NDArray[Any]:
    """Returns what an engine makes of all samples, and shows how far it is."""
    found = []
    for first in range(0, len(samples.images), AT_ONCE):
        found.append(engine(samples.images[first : first + AT_ONCE]))
        print(f"\r{name}: {min(first + AT_ONCE, len(samples.images))} of {len(samples.images)} images", end="")
    print(flush=True)
    return np.concatenate(found)


def time_in_turns(engines: dict[str, Engine], images: NDArray[Any], rounds: int) -> dict[str, Timing]:
    """Times all engines, again where the baseline drifts."""
    for _ in range(ATTEMPTS):
        times = time_engines(engines, images, rounds=rounds)
        if times[BASELINE].drift <= MOST_DRIFT:
            return times
        print(f"{BASELINE} drifted by {times[BASELINE].drift:.0%}; once more", flush=True)
    raise SystemExit(f"{BASELINE} drifted {ATTEMPTS} times in a row: the machine is too busy to tell; try again")


def main() -> None:
    options = argparse.ArgumentParser(description="What 8 bits cost in accuracy, and save in time.")
    options.add_argument("run", type=Path, help="a run of 'cruciform train'")
    options.add_argument("--rounds", type=int, default=40, help="turns of each engine")
    options.add_argument("--images", type=int, help="of the test set; all unless said")
    options.add_argument("--result", type=Path, default=RESULT, help="where to write")
    given = options.parse_args()

    trained = trained_network(given.run)
    calibration = sample_images(given.run, CALIBRATION)
    parts = list(prepared_batches(given.run, "test", batch=1000))
    samples = Prepared(*(np.concatenate(arrays)[: given.images] for arrays in zip(*parts, strict=True)))
    engines: dict[str, Engine] = {}
    sizes, found = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ENGINES:
            print(f"{name}: building", flush=True)
            (Path(folder) / name).mkdir()
            engines[name] = build(trained.model, name, calibration, Path(folder) / name)
            sizes[name] = sum(file.stat().st_size for file in (Path(folder) / name).iterdir())
            found[name] = outputs(name, engines[name], samples)
        times = {}
        for batch in BATCHES:
            print(f"times of batch {batch}, {given.rounds} rounds", flush=True)
            times[batch] = time_in_turns(engines, samples.images[:batch], given.rounds)

    exact = found["torch"]
    reach = float(exact.max() - exact.min())
    summary: dict[str, float] = {}
    for name in ENGINES:
        key = "f32" if name == "torch" else name.replace("-", "_")
        summary[f"top1_{key}"] = round(float((found[name].argmax(1) == samples.labels).mean()), 4)
    for name in (name for name in ENGINES if TARGETS.get(name).needs_images):
        key = name.replace("-", "_")
        summary[f"top1_lost_{key}"] = round(summary["top1_f32"] - summary[f"top1_{key}"], 4)
        summary[f"same_guess_{key}"] = round(float((found[name].argmax(1) == exact.argmax(1)).mean()), 4)
        summary[f"largest_error_{key}"] = round(float(np.abs(found[name] - exact).max()) / reach, 4)
    for batch, timings in times.items():
        for name in (name for name in ENGINES if name != BASELINE):
            ratio = timings[name].best / timings[BASELINE].best
            summary[f"time_{name.replace('-', '_')}_of_openvino_batch_{batch}"] = round(ratio, 4)
    status = Run(given.run).status()
    record_result(
        given.result,
        summary=summary,
        details={
            "network": status["model"],
            "epochs": status["epochs"],
            "test_images": len(samples.labels),
            "calibration_images": len(calibration),
            "form": FORM,
            "threads": 1,
            "bytes": sizes,
            "milliseconds": {
                f"batch {batch}": {
                    name: {"best": round(1e3 * timing.best, 4), "median": round(1e3 * timing.middle, 4)}
                    for name, timing in timings.items()
                }
                for batch, timings in times.items()
            },
        },
        command=f"python benchmarks/int8.py runs/{given.run.name}",
        n=given.rounds,
        packages=("openvino", "nncf", "torchao"),
    )
    print("\n".join(f"{name}: {value}" for name, value in summary.items()))


if __name__ == "__main__":
    main()
