"""Is what we deploy ever slower than the dense network that it came from?

All networks of the zoo, twelve of other libraries converted by ``lr``, others whose transposed convolutions become
chains, and networks as ``compress`` chose them (``results/compress.json``), in ONNX Runtime and OpenVINO: the network
as ``cruciform deploy`` would deploy it, against the original in the fastest way that the same engine knows,
interleaved, one thread, the shortest of some rounds. Where what is shipped is the original's own graph, operation by
operation, their ratio is 1 and is not measured: two engines of one graph differ by noise alone. Every network is
recorded when it is done and not measured again, so an interrupted run is resumed; delete the file to start from
scratch.

    python benchmarks/never_slower.py        writes results/never-slower.json
"""

import json
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import torch
from compress_networks import NETWORKS
from torch import nn

from cruciform import convert
from cruciform.cli.shared.progress import measuring
from cruciform.conversion.dense import collapse
from cruciform.deployment.artifact import verdict
from cruciform.deployment.bench.bench import prefixed
from cruciform.deployment.search.build import Build, EngineSettings, build_engine, noise
from cruciform.deployment.search.choose import ProgressCallback, choose_build
from cruciform.deployment.search.clock import time_engines
from cruciform.deployment.search.layer_forms import build_form
from cruciform.deployment.targets.target import TARGETS
from cruciform.errors import DeployError, NotLinearError
from cruciform.files import read_text
from cruciform.measure.record import record_result, today
from cruciform.models.network import MODELS
from cruciform.models.zoo import create_model
from cruciform.sources.build_network import build_network

ROUNDS = 30
SCHEME = "lr"
RESULTS = Path(__file__).parents[1] / "results"
RESULT = RESULTS / "never-slower.json"
ENGINES = ("onnxruntime", "openvino")
CONVERTED = {
    "torchvision:resnet18": (3, 224, 224),
    "torchvision:resnet50": (3, 224, 224),
    "torchvision:vgg16": (3, 224, 224),
    "torchvision:densenet121": (3, 224, 224),
    "torchvision:inception_v3": (3, 299, 299),
    "torchvision:convnext_tiny": (3, 224, 224),
    "torchvision:squeezenet1_1": (3, 224, 224),
    "torchvision:regnet_x_400mf": (3, 224, 224),
    "timm:efficientnet_b0": (3, 224, 224),
    "timm:darknet53": (3, 256, 256),
    "monai:UNet-2d": (1, 128, 128),
    "monai:ResNet18-3d": (1, 48, 48, 48),
}

UPWARDS = " as lr or sf"
TRANSPOSED = {
    "monai:UNet-2d": (1, 128, 128),
    "monai:AttentionUnet-2d": (1, 128, 128),
    "monai:BasicUNet-2d": (1, 128, 128),
    "monai:AutoEncoder-2d": (1, 128, 128),
    "monai:DynUNet-2d": (1, 128, 128),
    "monai:UNet-3d": (1, 64, 64, 64),
    "monai:SegResNetDS-3d": (1, 48, 48, 48),
}
"""Networks with transposed convolutions; their names in the results end in ``UPWARDS``."""

COMPRESSED = {
    f"{name} at {budget}%": (name, str(budget))
    for name, budgets in {"cifar_fast": (60, 45, 35), "resnet18": (60, 45, 35), "vgg16": (60, 45, 35)}.items()
    for budget in budgets
}
"""Of the networks that ``compress.py`` compressed: which, and to what percentage of the dense time."""
SMALL = (3, 32, 32)

FELL_BACK = ("falls back to the equal dense network", "do not pay")  # in a verdict, today and as it was recorded


def build(name: str) -> tuple[nn.Module, nn.Module | None, tuple[int, ...]]:
    """Returns a network of basis filters, the dense one that it came from or equals, and the size of an image."""
    torch.manual_seed(0)
    if name in CONVERTED:
        original = build_network(name).model.eval()
        return convert(original, SCHEME).model.eval(), original, CONVERTED[name]
    if name.endswith(UPWARDS):
        reference = name.removesuffix(UPWARDS)
        original, size = build_network(reference).model.eval(), TRANSPOSED[reference]
        return convert(original, UPWARDS.removeprefix(" as "), input_size=size).model.eval(), original, size
    if name in COMPRESSED:
        network, budget = COMPRESSED[name]
        original = (NETWORKS[network].build or partial(create_model, network))().eval()
        mapping = choices()[network][budget]
        return convert(original, mapping, input_size=SMALL).model.eval(), original, SMALL
    model = create_model(name).eval()
    try:
        return model, collapse(model), MODELS.get(name).input_shape
    except NotLinearError:
        return model, None, MODELS.get(name).input_shape


def choices() -> dict[str, dict[str, dict[str, str]]]:
    """Returns what ``compress.py`` chose for every layer, by network and budget, of the first seed."""
    rows = json.loads(read_text(RESULTS / "compress.json"))["details"]["networks"]
    return {
        key.removesuffix("-0"): {budget: found["ours"]["mapping"] for budget, found in row["budgets"].items()}
        for key, row in rows.items()
        if key.endswith("-0")
    }


def compare(name: str, target: str, on_progress: ProgressCallback) -> dict[str, Any]:
    """Measures one network in one engine."""
    model, original, size = build(name)
    setting = EngineSettings(TARGETS.get(target), size, rounds=8)
    try:
        choice = choose_build(model, setting, on_progress=on_progress)
    except DeployError as error:
        return {"network": name, "target": target, "failed": str(error)}
    found: dict[str, Any] = {
        "network": name,
        "target": target,
        "verdict": verdict(choice),
        "way": choice.build.way,
        "forms": dict(choice.build.forms),
        "milliseconds": 1e3 * choice.timing.best,
    }
    if original is None:
        return found
    if choice.build.is_dense and _operations(model, choice.build, size) == _operations(original, Build({}), size):
        return {**found, "ratio": 1.0, "same_graph": True}
    with tempfile.TemporaryDirectory() as folder:
        engines = {"deployed": build_engine(model, choice.build, setting, _new(folder))}
        for way in setting.ways():
            try:
                engines[way] = build_engine(original, Build({}, way), setting, _new(folder))
            except DeployError as error:
                found.setdefault("untried", []).append(f"{way}: {error}")
        on_progress("as deployed against the original")
        times = time_engines(engines, noise(1, size), rounds=ROUNDS)
    deployed = times.pop("deployed")
    dense = min(times.values(), key=lambda timing: timing.best)
    return {
        **found,
        "milliseconds": 1e3 * deployed.best,
        "milliseconds_median": 1e3 * deployed.middle,
        "dense_milliseconds": 1e3 * dense.best,
        "dense_milliseconds_median": 1e3 * dense.middle,
        "ratio": deployed.best / dense.best,
    }


def _operations(model: nn.Module, build: Build, size: tuple[int, ...]) -> list[tuple[str, str]]:
    """Returns what a network computes, and on how much: equal lists take equal times."""
    graph = build_form(model, build.forms, size)
    return [(str(node.target), str(getattr(node.meta.get("val"), "shape", ""))) for node in graph.graph.nodes
            if node.op == "call_function"]  # fmt: skip


def _new(folder: str) -> Path:
    return Path(tempfile.mkdtemp(dir=folder))


def main() -> None:
    rows = json.loads(RESULT.read_text("utf-8"))["details"] if RESULT.is_file() else []
    done = {(row["network"], row["target"]) for row in rows}
    recorded = choices()
    compressed = [name for name, (network, budget) in COMPRESSED.items() if budget in recorded.get(network, {})]
    if len(compressed) < len(COMPRESSED):
        missing = sorted(COMPRESSED.keys() - set(compressed))
        print(f"not yet compressed by compress.py: {', '.join(missing)}", flush=True)
    names = (*MODELS.names(), *CONVERTED, *(f"{name}{UPWARDS}" for name in TRANSPOSED), *compressed)
    every = [(name, target) for name in names for target in ENGINES]
    left = [one for one in every if one not in done]
    with measuring() as on_progress:
        for number, (name, target) in enumerate(left, start=1):
            where = f"{number} of {len(left)}, {name} in {target}"
            row = compare(name, target, prefixed(on_progress, where))
            rows.append({**row, "date": today()})
            record(rows)
            ratio = f"{row['ratio']:.3f}" if "ratio" in row else "no dense original"
            print(f"{where}: {ratio}, {row.get('verdict', row.get('failed'))}", flush=True)


def record(rows: list[dict[str, Any]]) -> None:
    """Writes what is known so far."""
    ratios = [row["ratio"] for row in rows if "ratio" in row]
    record_result(
        RESULT,
        summary={
            "worst_ratio": round(max(ratios, default=0), 4),
            "networks": len({row["network"] for row in rows if "ratio" in row}),
            "comparisons": len(ratios),
            "above_1.02": sum(ratio > 1.02 for ratio in ratios),
            "measured": sum("dense_milliseconds" in row for row in rows),
            "shipped_dense": sum(any(words in row.get("verdict", "") for words in FELL_BACK) for row in rows),
            "failed": sum("failed" in row for row in rows),
            "best_ratio": round(min(ratios, default=0), 4),
        },
        details=sorted(rows, key=lambda row: -row.get("ratio", 0)),
        command="python benchmarks/never_slower.py",
        n=ROUNDS,
        packages=("onnxruntime", "openvino", "timm", "torchvision", "monai"),
    )


if __name__ == "__main__":
    main()
