"""Where the time of 3-D networks goes that the saving in multiply-accumulates does not take away: ONNX Runtime says.

The networks as ``cruciform bench --suite volumes`` found them fastest (``results/bench-volumes.json``), one volume of
64³, one thread, every operation's shortest time over some runs.

    python benchmarks/volumes_profile.py        writes results/bench-volumes-profile.json
"""

import json
import tempfile
from pathlib import Path
from typing import Any

from ort_profile import by_kind, profile_runs

from cruciform.deployment.bench.suites import build_suite_network
from cruciform.deployment.search.build import Build, EngineSettings, build_engine, noise
from cruciform.deployment.targets.target import TARGETS
from cruciform.measure.record import record_result

RUNS = 8
RESULTS = Path(__file__).parents[1] / "results"
SIZE = (1, 64, 64, 64)
SHOWN = {
    "PRelu": "activations",
    "LeakyRelu": "activations",
    "Relu": "activations",
    "Conv": "convolutions",
    "FusedConv": "convolutions",
    "ConvTranspose": "transposed_convolutions",
    "InstanceNormalization": "norms",
    "Concat": "concatenations",
    "ReorderInput": "orders_of_memory",
    "ReorderOutput": "orders_of_memory",
}


def times(name: str, build: Build) -> dict[str, float]:
    """Returns the milliseconds of each kind of operation."""
    with tempfile.TemporaryDirectory() as folder:
        build_engine(
            build_suite_network(name).eval(), build, EngineSettings(TARGETS.get("onnxruntime"), SIZE), Path(folder)
        )
        operations = profile_runs(Path(folder), noise(1, SIZE), RUNS)
    return by_kind(operations, lambda one: SHOWN.get(one.kind, "rest"), runs=RUNS)


def main() -> None:
    measured = json.loads((RESULTS / "bench-volumes.json").read_text("utf-8"))["details"]
    details: dict[str, Any] = {}
    summary: dict[str, float] = {}
    for part in measured.values():
        if part["target"] != "onnxruntime" or part["threads"] != 1:
            continue
        dense, cross = list(part["networks"])[:2]
        chosen = part["networks"][cross]
        builds = {dense: Build({}), cross: Build(chosen["forms"], chosen["way"])}
        for short, (name, build) in zip(("dense", "cross3"), builds.items(), strict=True):
            details[name] = times(name, build)
            for kind, milliseconds in details[name].items():
                summary[f"{part['comparison']}_{short}_{kind}"] = round(milliseconds, 3)
            print(name, {kind: round(value, 2) for kind, value in details[name].items()}, flush=True)
    record_result(
        RESULTS / "bench-volumes-profile.json",
        summary=summary,
        details=details,
        command="python benchmarks/volumes_profile.py",
        n=RUNS,
        packages=("onnxruntime", "monai"),
    )


if __name__ == "__main__":
    main()
