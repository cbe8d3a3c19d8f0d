"""Where the time goes that the saving in multiply-accumulates does not take away: ONNX Runtime's own profile.

The VGG networks as ``cruciform bench`` found them fastest (``results/bench-vgg.json``), one thread, every operation's
shortest time over some runs; a part's share is of the ideal time, that of the dense baseline divided by its MACs over
the network's.

    python benchmarks/vgg_profile.py        writes results/bench-vgg-profile.json
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from ort_profile import Operation, by_kind, profile_runs

from cruciform.deployment.search.build import Build, EngineSettings, build_engine, noise
from cruciform.deployment.targets.target import TARGETS
from cruciform.measure.macs import profile
from cruciform.measure.record import record_result
from cruciform.models.zoo import create_model

RUNS = 12
RESULTS = Path(__file__).parents[1] / "results"
SIZE = (3, 224, 224)


def times(name: str, build: Build, batch: int) -> dict[str, float]:
    """Returns the milliseconds of each kind of operation."""
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        build_engine(
            create_model(name).eval(), build, EngineSettings(TARGETS.get("onnxruntime"), SIZE, batch), Path(folder)
        )
        operations = profile_runs(Path(folder), noise(batch, SIZE), RUNS)
    return by_kind(operations, _kind, runs=RUNS, loops=batch if build.way == "image by image" else 1)


def _kind(one: Operation) -> str | None:
    if one.kind == "Scan":
        return None  # what it loops over is counted
    if one.kind == "Conv":
        if one.shapes[0][2:] == [1, 1]:
            return "fully connected"
        return "first layer" if one.shapes[0][1] == SIZE[0] else "other convolutions"
    kinds = {"MaxPool": "pooling", "Gemm": "fully connected", "FusedGemm": "fully connected", "Concat": "concatenation"}
    return kinds.get(one.kind, "rest")


def main() -> None:
    measured = json.loads((RESULTS / "bench-vgg.json").read_text("utf-8"))["details"]
    rows: dict[str, Any] = {}
    summary: dict[str, float] = {}
    for part in measured.values():
        if part["target"] != "onnxruntime" or part["threads"] != 1:
            continue
        dense, *names = part["networks"]
        macs = {name: profile(create_model(name), SIZE).macs for name in part["networks"]}
        base = times(dense, Build({}), part["batch"])
        for name in names:
            entry = part["networks"][name]
            parts = times(name, Build(entry["forms"], entry["way"]), part["batch"])
            ideal = sum(base.values()) * macs[name] / macs[dense]
            rows[f"{name}, batch {part['batch']}"] = {"ideal": ideal, "milliseconds": parts, "dense": base}
            short = f"b{part['batch']}_{name.removeprefix(f'{dense}_')}"
            for kind, milliseconds in parts.items():
                summary[f"{short}_{kind.replace(' ', '_')}"] = round(milliseconds / ideal, 4)
                print(
                    f"{name}, batch {part['batch']}: {kind} {milliseconds:.2f} ms, {milliseconds / ideal:.1%} of ideal"
                )
    record_result(
        RESULTS / "bench-vgg-profile.json",
        summary=summary,
        details=rows,
        command="python benchmarks/vgg_profile.py",
        n=RUNS,
        packages=("onnxruntime",),
    )


if __name__ == "__main__":
    main()
