"""Dice of a 3-D UNet, dense and of crosses, under the same budget of steps, on one real brain.

    pip download --no-deps --dest DIR nilearn==0.14.1
    CRUCIFORM_DATA=DIR python benchmarks/volumes_segmentation.py       writes results/volumes-segmentation.json

None of the packages that were looked into (torchio, brainextractor, nibabel) holds a set of segmented volumes, but the
wheel of nilearn holds the ICBM 152 template of 2009: a T1 image at 1 mm, averaged over 152 real brains, and its maps of
grey and white matter. It is mirror-symmetric, so one half is used. Its back is trained on; its front, behind a gap as
wide as a window, is judged by a sliding window. An average is so clean that brightness alone would tell the tissues
apart (Dice 0.97), so noise is added that is nearly as strong as grey and white matter differ: the shapes are real, the
noise is generated. How far brightness gets then, by two thresholds chosen on the back, is told beside. One brain shows
whether two networks learn the same, not how well either would do on patients. Steps and start were chosen on the gap:
after half as many steps networks of crosses are far behind.

Runs that are recorded are not run again. One thread: OMP_NUM_THREADS=1.
"""

import gzip
import json
import os
import statistics
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from cruciform.conversion.convert import convert
from cruciform.errors import DataError
from cruciform.machine.memory import keep_freed_memory
from cruciform.measure.macs import profile
from cruciform.measure.record import record_result
from cruciform.sources.build_network import build_network

RESULT = Path(__file__).parents[1] / "results" / "volumes-segmentation.json"
DATA = Path(os.environ.get("CRUCIFORM_DATA", "."))
COMMAND = "CRUCIFORM_DATA=DIR python benchmarks/volumes_segmentation.py"
FILE = "nilearn/datasets/data/mni_icbm152_{}_tal_nlin_sym_09a_converted.nii.gz"
SCHEMES = {"dense": None, "cross3": "cross3", "cross3_full_quarter": "cross:full=0.25"}
CLASSES = ("other", "grey", "white")
SEEDS, STEPS, BATCH, WINDOW, RATE, START = 3, 480, 8, 32, 3e-3, "identity"
NOISE = 0.4  # the means of grey and white matter are 0.48 apart
MIDDLE, BACK, FRONT = 98, slice(16, 110), slice(142, 214)  # of the axes left to right, and back to front


def read_map(wheel: Path, name: str) -> NDArray[np.uint8]:
    """Returns one map of the template, which is a file in NIfTI's format with bytes in it."""
    with zipfile.ZipFile(wheel) as archive:
        raw = gzip.decompress(archive.read(FILE.format(name)))
    sizes, start = np.frombuffer(raw, "<i2", 3, 42), int(np.frombuffer(raw, "<f4", 1, 108)[0])
    return np.frombuffer(raw, np.uint8, int(np.prod(sizes, dtype=np.int64)), start).reshape(sizes, order="F")


def read_brain() -> tuple[Tensor, Tensor]:
    """Returns the image and the classes of one half of the brain."""
    wheels = sorted(DATA.glob("nilearn-*.whl"))
    if not wheels:
        raise DataError(f"{DATA} has no wheel of nilearn; fetch it: pip download --no-deps --dest {DATA} nilearn")
    image, grey, white = (read_map(wheels[0], name)[: MIDDLE + 1] for name in ("t1", "gm", "wm"))
    classes = np.where(grey > 127, 1, np.where(white > 127, 2, 0))
    return torch.from_numpy(image / np.float32(100) - 1), torch.from_numpy(classes)


def with_noise(image: Tensor, random: np.random.Generator) -> Tensor:
    """Returns an image with noise."""
    return image + NOISE * torch.from_numpy(random.standard_normal(tuple(image.shape), np.float32))


def dice(found: Tensor, true: Tensor) -> list[float]:
    """Returns 2|A∩B| / (|A| + |B|) of every class but the first."""
    both = [(float(((found == c) & (true == c)).sum()), float((found == c).sum() + (true == c).sum())) for c in (1, 2)]
    return [2 * shared / total for shared, total in both]


def by_brightness(image: Tensor, classes: Tensor) -> list[float]:
    """Returns the Dice on the front of two thresholds: the best ones on the back."""

    def split(part: slice, low: float, high: float) -> list[float]:
        inside = image[:, part]
        return dice((inside >= low).long() + (inside >= high), classes[:, part])

    pairs = [(low, high) for low in np.arange(0.1, 0.8, 0.05) for high in np.arange(0.7, 1.3, 0.05) if low < high]
    return split(FRONT, *max(pairs, key=lambda pair: sum(split(BACK, *pair))))


def build(network: str) -> nn.Module:
    """Returns the UNet, converted where asked; its weights are those of torch's generator."""
    model, _ = build_network("monai:UNet-3d", {"out_channels": len(CLASSES)})
    scheme = SCHEMES[network]
    return convert(model, scheme, input_size=(1, *(WINDOW,) * 3), init=START).model if scheme else model


def learn_(model: nn.Module, image: Tensor, classes: Tensor, random: np.random.Generator) -> None:
    """Takes the steps: windows of the back, mirrored along any axis, in 32 bits."""
    optimizer = torch.optim.AdamW(model.parameters(), RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=STEPS)
    model.train()
    for _ in range(STEPS):
        images, labels = [], []
        for _ in range(BATCH):
            where = tuple(
                slice(start, start + WINDOW) for start in random.integers(0, np.array(image.shape) - WINDOW + 1)
            )
            axes = [axis for axis in range(3) if random.random() < 0.5]
            images.append(with_noise(image[where].flip(axes), random))
            labels.append(classes[where].flip(axes))
        output = model(torch.stack(images)[:, None])
        optimizer.zero_grad()
        F.cross_entropy(output, torch.stack(labels)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


def run(network: str, seed: int, image: Tensor, classes: Tensor) -> dict[str, Any]:
    """Trains one network on the back and judges it on the front, whose noise is the same for all."""
    from monai.inferers.utils import sliding_window_inference

    torch.manual_seed(seed)
    model = build(network)
    counted = profile(model, (1, *(WINDOW,) * 3))
    start = time.process_time()
    learn_(model, image[:, BACK], classes[:, BACK], np.random.default_rng(seed))
    trained = time.process_time()
    front = with_noise(image, np.random.default_rng(SEEDS))[:, FRONT]
    with torch.no_grad():
        scores = sliding_window_inference(front[None, None], (WINDOW,) * 3, 4, model.eval(), overlap=0.25)
    found = dice(scores[0].argmax(0), classes[:, FRONT])  # type: ignore[index, union-attr]
    return {
        "network": network, "seed": seed, "dice_grey": found[0], "dice_white": found[1], "macs": counted.macs,
        "params": counted.params, "train_seconds": trained - start, "predict_seconds": time.process_time() - trained,
    }  # fmt: skip


def summarize(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Returns means over seeds and standard deviations, as ``dice_dense`` and ``dice_dense_sd``."""
    summary: dict[str, float] = {}
    for network in SCHEMES:
        group = [row for row in rows if row["network"] == network]
        for key in ("dice_grey", "dice_white", "train_seconds", "predict_seconds") if group else ():
            summary[f"{key}_{network}"] = round(statistics.fmean(row[key] for row in group), 4)
        if group:
            means = [(row["dice_grey"] + row["dice_white"]) / 2 for row in group]
            summary[f"dice_{network}"] = round(statistics.fmean(means), 4)
            summary[f"dice_{network}_sd"] = round(statistics.stdev(means), 4) if len(means) > 1 else 0.0
            summary |= {f"mmacs_{network}": round(group[0]["macs"] / 1e6, 2), f"params_{network}": group[0]["params"]}
    return summary


def record(rows: Sequence[dict[str, Any]], thresholds: Sequence[float]) -> None:
    """Writes what is known so far."""
    grey, white = (round(value, 4) for value in thresholds)
    summary = summarize(rows) | {"dice_grey_thresholds": grey, "dice_white_thresholds": white}
    seeds = min(sum(row["network"] == network for row in rows) for network in {row["network"] for row in rows})
    record_result(RESULT, summary=summary, details=list(rows), command=COMMAND, n=seeds, packages=("monai",))


def main() -> None:
    keep_freed_memory()
    image, classes = read_brain()
    rows: list[dict[str, Any]] = json.loads(RESULT.read_text("utf-8"))["details"] if RESULT.is_file() else []
    done = {(row["network"], row["seed"]) for row in rows}
    thresholds = by_brightness(with_noise(image, np.random.default_rng(SEEDS)), classes)
    for seed in range(SEEDS):
        for network in SCHEMES:
            if (network, seed) not in done:
                rows.append(run(network, seed, image, classes))
                record(rows, thresholds)
                print(rows[-1], flush=True)


if __name__ == "__main__":
    main()
