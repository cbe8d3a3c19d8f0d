"""Sliding-window inference on a volume of 128³, end to end: time and peak memory, dense and of crosses, side by side.

    python benchmarks/volumes.py        writes results/volumes.json

Every network is deployed as ``cruciform deploy`` would, then run by MONAI's own sliding window (windows of 64³, a
quarter of overlap, one thread) in a process of its own, whose peak memory is reported beside the time. Dense and
converted take turns; the shortest of some runs counts. Networks that are done are not measured again, so that rows may
come from several machines: each says which.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cruciform.cli.shared.progress import measuring
from cruciform.deployment.artifact import open_artifact, write_artifact
from cruciform.deployment.bench.bench import prefixed
from cruciform.deployment.bench.suites import AS, build_suite_network
from cruciform.deployment.search.build import EngineSettings
from cruciform.deployment.search.choose import ProgressCallback, choose_build
from cruciform.deployment.targets.target import TARGETS
from cruciform.measure.macs import profile
from cruciform.measure.record import hardware, peak_memory, record_result, today

RESULT = Path(__file__).parents[1] / "results" / "volumes.json"
NETWORKS = ("monai:UNet-3d", "monai:SegResNet-3d", "monai:DynUNet-3d", "monai:VNet-3d")
ENGINES = ("onnxruntime", "openvino")
SCHEME = "cross3"
SIDE, WINDOW, OVERLAP = 128, 64, 0.25
TURNS, SEARCH_SECONDS = 5, 60.0


def run_window(artifact: Path) -> None:
    """Runs in the process of its own: the volume once to warm up, once for the clock."""
    from monai.inferers.utils import sliding_window_inference

    engine = open_artifact(artifact)
    volume = torch.from_numpy(np.random.default_rng(0).normal(size=(1, 1, SIDE, SIDE, SIDE)).astype(np.float32))
    times = []
    for _ in range(2):
        start = time.process_time()
        sliding_window_inference(
            volume, (WINDOW,) * 3, 1, lambda window: torch.from_numpy(engine(window.numpy())), overlap=OVERLAP
        )
        times.append(time.process_time() - start)
    print(json.dumps({"seconds": times[-1], "megabytes": peak_memory() / 2**20}))


def examine(network: str, target: str, on_progress: ProgressCallback) -> dict[str, Any]:
    """Deploys a network dense and converted, and runs both in turns."""
    names = {"dense": network, SCHEME: f"{network}{AS}{SCHEME}"}
    size = (1, WINDOW, WINDOW, WINDOW)
    setting = EngineSettings(TARGETS.get(target), size, search_seconds=SEARCH_SECONDS)
    row: dict[str, Any] = {"network": network, "target": target, "date": today(), "hardware": hardware()}
    with tempfile.TemporaryDirectory() as folder:
        for kind, name in names.items():
            model = build_suite_network(name).eval()
            row[f"{kind}_gmacs"] = profile(model, size).macs / 1e9
            choice = choose_build(model, setting, on_progress=prefixed(on_progress, f"{name}, {target}"))
            write_artifact(model, choice, setting, Path(folder) / kind, about={"network": name})
        runs: dict[str, list[dict[str, float]]] = {kind: [] for kind in names}
        for turn in range(TURNS):
            for kind, found in runs.items():
                on_progress(f"{names[kind]}, {target}: turn {turn + 1} of {TURNS}")
                ended = subprocess.run(  # noqa: S603
                    [sys.executable, __file__, "--window", str(Path(folder) / kind)],
                    capture_output=True, check=True, text=True,
                )  # fmt: skip
                found.append(json.loads(ended.stdout.splitlines()[-1]))
    for kind, found in runs.items():
        row |= {
            f"{kind}_seconds": min(run["seconds"] for run in found),
            f"{kind}_megabytes": min(run["megabytes"] for run in found),
            f"{kind}_runs": [round(run["seconds"], 3) for run in found],
        }
    row["time"] = row[f"{SCHEME}_seconds"] / row["dense_seconds"]
    row["memory"] = row[f"{SCHEME}_megabytes"] / row["dense_megabytes"]
    return row


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--window", type=Path)
    given = parser.parse_args()
    if given.window:
        run_window(given.window)
        return
    rows: list[dict[str, Any]] = json.loads(RESULT.read_text("utf-8"))["details"] if RESULT.is_file() else []
    done = {(row["network"], row["target"]) for row in rows}
    with measuring() as on_progress:
        for network in NETWORKS:
            for target in ENGINES:
                if (network, target) not in done:
                    rows.append(examine(network, target, on_progress))
                    record(rows)
    for row in rows:
        print(f"{row['network']} in {row['target']}: {row['time']:.2f} of the time, {row['memory']:.2f} of the memory")


def record(rows: list[dict[str, Any]]) -> None:
    """Writes what is known so far."""
    summary = {}
    for row in rows:
        short = f"{row['network'].removeprefix('monai:').removesuffix('-3d').lower()}_{row['target']}"
        summary |= {f"{short}_time": round(row["time"], 4), f"{short}_memory": round(row["memory"], 4)}
    record_result(
        RESULT, summary=summary, details=rows, command="python benchmarks/volumes.py", n=TURNS,
        packages=("monai", "onnxruntime", "openvino"),
    )  # fmt: skip


if __name__ == "__main__":
    main()
