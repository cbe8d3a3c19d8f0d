"""Networks that scale their residuals, in ONNX Runtime: the scales as multiplications, or as convolutions.

    python benchmarks/scaled_residuals.py        writes results/scaled-residuals.json

The engine keeps feature maps in blocks of channels between convolutions, poolings and additions; a multiplication by a
constant ends that, for the rest of a residual network. Each network is exported both ways and timed in interleaved
rounds on one thread, CPU time, the shortest round counts. Scales right behind a convolution are folded in both.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import timm
import torch
from torch import nn

from cruciform.conversion.convert import convert
from cruciform.deployment.search.build import PLAIN, EngineSettings, build_graph, noise, write_engine
from cruciform.deployment.search.clock import time_engines
from cruciform.deployment.search.layer_forms import forms_of_layers
from cruciform.deployment.targets.target import TARGETS
from cruciform.measure.record import record_result

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "real_esrgan"))
from rrdb_net import RrdbNet

RESULT = Path(__file__).parents[1] / "results" / "scaled-residuals.json"
WAY = "scales as convolutions"
ESRGAN_SIZE, SIZE = (3, 32, 32), (3, 224, 224)


def low_rank_esrgan() -> nn.Module:
    """Return Real-ESRGAN with 16 channels between the two lines of every filter."""
    return convert(RrdbNet(), "sf:rank=16", init="auto", input_size=ESRGAN_SIZE).model


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, int, int]]] = {
    "real_esrgan": (RrdbNet, ESRGAN_SIZE),
    "real_esrgan_sf": (low_rank_esrgan, ESRGAN_SIZE),
    "nf_resnet50": (lambda: timm.create_model("nf_resnet50"), SIZE),
    "dm_nfnet_f0": (lambda: timm.create_model("dm_nfnet_f0"), SIZE),
}


def measure(name: str, rounds: int) -> dict[str, float]:
    """Return the milliseconds of a network in each way."""
    make, size = NETWORKS[name]
    torch.manual_seed(0)
    model, setting = make().eval(), EngineSettings(TARGETS.get("onnxruntime"), size)
    graph = build_graph(model, forms_of_layers(model, {}), setting)
    with tempfile.TemporaryDirectory() as folder:
        engines = {}
        for way in (PLAIN, WAY):
            place = Path(folder) / way
            place.mkdir()
            engines[way] = write_engine(graph, way, setting, place)
        times = time_engines(engines, noise(1, size), rounds=rounds, threads=1)
    return {way: 1000 * timing.best for way, timing in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="Scaled residuals in ONNX Runtime, written in two ways.")
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    details = {}
    for name in NETWORKS:
        details[name] = measure(name, rounds)
        print(name, details[name], flush=True)
    summary = {f"{name}_ratio": round(row[WAY] / row[PLAIN], 3) for name, row in details.items()}
    record_result(
        RESULT,
        summary=summary,
        details=details,
        command="python benchmarks/scaled_residuals.py",
        n=rounds,
        packages=("onnxruntime", "timm"),
    )
    print(json.dumps(summary, indent=1))


if __name__ == "__main__":
    main()
