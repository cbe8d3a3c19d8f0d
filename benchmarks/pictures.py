"""Draw the pictures of the docs again, from results/ alone: after a change of how they look; nothing is measured.

python benchmarks/pictures.py
"""

import json
from pathlib import Path

import compress_picture
import cross_picture
import front_picture
import volumes_picture

from cruciform.deployment.bench.bench_result import read_parts
from cruciform.plot.bench import draw_bench
from cruciform.plot.race import draw_race

ROOT = Path(__file__).parents[1]


def draw_speeds() -> None:
    """Draw docs/bench-vgg.png: MACs and time of the VGG-11 networks."""
    points = {
        f"{part['target']}, batch size {part['batch']}": [
            (network, row["macs"] / 1e9, row["milliseconds"] / part["batch"])
            for network, row in part["networks"].items()
        ]
        for part in read_parts(ROOT / "results" / "bench-vgg.json")
        if part["threads"] == 1
    }
    draw_bench(
        points,
        ROOT / "docs" / "bench-vgg.png",
        title="VGG-11, one thread: time follows MACs in float32, less so in bfloat16",
    )


def draw_accuracies() -> None:
    """Draw docs/cifar10.png: accuracy over training time, with the seconds of an idle machine."""
    result = json.loads((ROOT / "results" / "cifar10.json").read_text("utf-8"))
    short = {"cifar_fast": "dense", "cifar_fast_cross": "lowrank"}
    runs: dict[str, list[list[tuple[float, float]]]] = {}
    for run in result["details"]:
        if run["name"] in short:
            seconds = result["summary"][f"{short[run['name']]}_seconds"]
            accuracies = [point["top1_mirrored"] for point in run["curve"]]  # with flip TTA, as it was recorded
            epochs = enumerate(accuracies, start=1)
            label = f"{run['name']} ({run['macs'] / 1e6:.0f} MMAC)"
            runs.setdefault(label, []).append([(seconds * n / len(accuracies), top1) for n, top1 in epochs])
    draw_race(runs, ROOT / "docs" / "cifar10.png")


def main() -> None:
    draw_speeds()
    draw_accuracies()
    compress_picture.main()
    front_picture.main()
    volumes_picture.main()
    cross_picture.PICTURE.write_text(cross_picture.draw(), "utf-8")


if __name__ == "__main__":
    main()
