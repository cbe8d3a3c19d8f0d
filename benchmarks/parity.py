"""Does every engine compute what PyTorch does? Six networks, all targets that run here, 512 real images each.

The Network-in-Network members see CIFAR-10's test images, the others Imagenette's validation images. Weights are those
of the start, drawn by the library's rule. An engine agrees in 32 bits where no output strays by more than 1e-4 of the
outputs' range, and every image whose two best classes lie 1e-3 apart, of the outputs' own scale, gets the same class.
What is done is recorded at once, and not done again; delete the file to begin anew.

    CRUCIFORM_DATA=DIR python benchmarks/parity.py        writes results/parity.json
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from cruciform import convert
from cruciform.cli.shared.progress import measuring
from cruciform.data.open_dataset import open_dataset
from cruciform.data.samples.source import Opening
from cruciform.deployment.search.build import Build, EngineSettings, build_engine
from cruciform.deployment.search.layer_forms import composite_layers
from cruciform.deployment.targets.target import TARGETS
from cruciform.errors import CruciformError
from cruciform.measure.record import record_result
from cruciform.models.zoo import create_model
from cruciform.sources.build_network import build_network

IMAGES, BATCH, MARGIN = 512, 16, 1e-3
RESULT = Path(__file__).parents[1] / "results" / "parity.json"
NETWORKS = {
    "nin": 32,
    "nin_c3_lr": 32,
    "vgg11_gmp_lr": 128,
    "vgg11_gmp_lr_join_wfull": 128,
    "googlenet_lr": 128,
    "torchvision:resnet18": 128,
}


def images(size: int) -> NDArray[Any]:
    """Returns real images, scaled roughly to deviation 1."""
    kind, path = ("cifar10", "cifar-10-batches-bin") if size == 32 else ("folder", "imagenette128")
    source = open_dataset(kind, Opening(Path(path), "test"))
    chosen = np.linspace(0, len(source) - 1, IMAGES).astype(int)  # of all classes
    pixels = np.stack([_center(source[int(number)].image, size) for number in chosen]).astype(np.float32)
    return np.ascontiguousarray(((pixels - 120) / 60).transpose(0, 3, 1, 2))


def _center(image: NDArray[Any], size: int) -> NDArray[Any]:
    top, left = ((length - size) // 2 for length in image.shape[:2])
    return image[top : top + size, left : left + size]


def network(name: str, size: int) -> nn.Module:
    """Returns a network of ten classes."""
    torch.manual_seed(0)
    if ":" in name:
        return convert(build_network(name, {"num_classes": 10}).model, "lr").model.eval()
    return create_model(name, num_classes=10, input_size=size).eval()


def compare(name: str, target: str, seen: NDArray[Any]) -> dict[str, Any]:
    """Runs one network in one engine, and in PyTorch."""
    model = network(name, NETWORKS[name])
    with torch.no_grad():
        expected = np.concatenate([model(torch.from_numpy(part)).numpy() for part in np.split(seen, IMAGES // BATCH)])
    engine = TARGETS.get(target).with_images(seen[:128])
    setting = EngineSettings(engine, seen.shape[1:], BATCH)
    build = Build(dict.fromkeys(composite_layers(model), "split"))
    with tempfile.TemporaryDirectory() as folder:
        run = build_engine(model, build, setting, Path(folder))
        found = np.concatenate([run(part) for part in np.split(seen, IMAGES // BATCH)])
    best = np.sort(expected, axis=1)
    sure = best[:, -1] - best[:, -2] > MARGIN
    return {
        "largest_error": float(np.abs(found - expected).max() / (expected.max() - expected.min())),
        "sure_images": int(sure.sum()),
        "same_class": int((found.argmax(1) == expected.argmax(1))[sure].sum()),
        "allowed": engine.tolerance,
    }


def main() -> None:
    rows = json.loads(RESULT.read_text("utf-8"))["details"] if RESULT.is_file() else []
    done = {(row["network"], row["target"]) for row in rows}
    with measuring() as on_progress:
        for name, size in NETWORKS.items():
            left = [target for target in TARGETS.names() if (name, target) not in done]
            seen = images(size) if left else None
            for target in left:
                on_progress(f"{name} in {target}")
                row: dict[str, Any] = {"network": name, "target": target}
                try:
                    row |= compare(name, target, seen)
                except CruciformError as error:
                    row["failed"] = str(error)
                rows.append(row)
                record(rows)
                print(row, flush=True)


def record(rows: list[dict[str, Any]]) -> None:
    """Writes what is known so far."""
    exact = [row for row in rows if TARGETS.get(row["target"]).precision == "f32" and "failed" not in row]
    coarse = [row for row in rows if row not in exact and "failed" not in row]
    record_result(
        RESULT,
        summary={
            "networks": len({row["network"] for row in rows}),
            "targets": len({row["target"] for row in rows}),
            "f32_largest_error": max((row["largest_error"] for row in exact), default=0.0),
            "f32_other_classes": sum(row["sure_images"] - row["same_class"] for row in exact),
            "f32_sure_images": sum(row["sure_images"] for row in exact),
            "other_largest_error": max((row["largest_error"] for row in coarse), default=0.0),
            "failed": sum("failed" in row for row in rows),
        },
        details=rows,
        command="CRUCIFORM_DATA=DIR python benchmarks/parity.py",
        n=IMAGES,
        packages=sorted({package for _, target in TARGETS.items() for package in target.packages}),
    )


if __name__ == "__main__":
    main()
