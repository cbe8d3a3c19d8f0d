"""What our training loop costs over a bare one, and how fast CIFAR-10 is read.

Both loops train the same network on the same tensors in the same process, in turns; a round's speed is that of its
steps after the first two, and the best round of each counts. Our loop does all it always does: reading ahead, keyed
random numbers, the gradient's norm, agreement on signals, a log line and an observer every step.

    python benchmarks/loop.py        writes results/loop.json
"""

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from cruciform import create_model
from cruciform.data.loader import Loader
from cruciform.data.order import Order
from cruciform.data.samples.source import DATASETS, ArraySource, DatasetKind
from cruciform.data.transforms.transforms import Hflip, RandomCrop
from cruciform.measure.record import record_result
from cruciform.training.engine.loop import train
from cruciform.training.recipe.python_objects import PythonObjects
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.run.observer import Observer, StepRecord
from cruciform.training.run.run import Run
from cruciform.training.runtime.runtime import SingleProcess
from cruciform.training.tables.table import read_table

ROUNDS, STEPS, WARM, BATCH = 8, 14, 2, 128
RESULT = Path(__file__).parents[1] / "results" / "loop.json"


def bare_loop(images: torch.Tensor, labels: torch.Tensor) -> float:
    """The whole of it: what one would write by hand."""
    model = create_model("nin_c3_lr", input_size=30).to(memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, fused=True)
    for step in range(STEPS):
        if step == WARM:
            start = time.perf_counter()
        here = slice(step * BATCH, (step + 1) * BATCH)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(images[here])
        F.cross_entropy(logits.float(), labels[here]).backward()
        optimizer.step()
    return (STEPS - WARM) * BATCH / (time.perf_counter() - start)


class Clock(Observer):
    """Notes when the steps that count began and ended."""

    def on_step(self, record: StepRecord) -> None:
        if record.step == WARM:
            self.start = time.perf_counter()
        if record.step == STEPS:
            self.end = time.perf_counter()


def our_loop() -> float:
    recipe = read_table(
        Recipe,
        {
            "model": {"name": "nin_c3_lr"},
            "data": {"kind": "tensors", "path": ".", "std": [1.0]},
            "optimizer": {"kind": "sgd", "lr": 0.01, "weight_decay": 1e-4},
            "epochs": 1,
            "batch_size": BATCH,
            "precision": "bf16",
            "log": {"steps": 1, "tensorboard": False},
        },
        "the benchmark's recipe",
    )
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        model = create_model("nin_c3_lr", input_size=30)
        train(
            recipe,
            Run(Path(folder) / "run"),
            SingleProcess(torch.device("cpu")),
            observers=[clock],
            inputs=PythonObjects(model=model),
        )
    return (STEPS - WARM) * BATCH / (clock.end - clock.start)


def loader_speed(source: ArraySource) -> float:
    loader = Loader(source, Order(len(source), BATCH, seed=0), (RandomCrop(32, padding=4), Hflip()))
    start, samples = time.perf_counter(), 0
    with loader.batches(range(100)) as batches:
        for batch in batches:
            samples += batch.counted
    return samples / (time.perf_counter() - start)


def main() -> None:
    numbers = np.random.default_rng(0)
    images = numbers.normal(size=(STEPS * BATCH, 30, 30, 3)).astype(np.float32)
    labels = numbers.integers(0, 10, len(images))
    train_set, test_set = (ArraySource(images[:n], labels[:n], tuple("0123456789")) for n in (len(images), 64))
    DATASETS.add("tensors", DatasetKind(lambda opening: train_set if opening.split == "train" else test_set))
    tensors = torch.from_numpy(images).movedim(-1, 1), torch.from_numpy(labels)
    pictures = ArraySource(
        numbers.integers(0, 256, (5000, 32, 32, 3), dtype=np.uint8), labels[:5000].repeat(3)[:5000], tuple("0123456789")
    )
    bare, ours, loader = [], [], []
    for number in range(ROUNDS):
        bare.append(bare_loop(*tensors))
        ours.append(our_loop())
        loader.append(loader_speed(pictures))
        print(
            f"round {number + 1}: bare {bare[-1]:.0f}, ours {ours[-1]:.0f}, loader {loader[-1]:,.0f} images/s",
            flush=True,
        )
    summary = {
        "loop_vs_bare": round(max(ours) / max(bare), 4),
        "loop_vs_bare_median": round(statistics.median(a / b for a, b in zip(ours, bare, strict=True)), 4),
        "loader_images_per_second": round(max(loader)),
        "loader_images_per_second_median": round(statistics.median(loader)),
    }
    record_result(
        RESULT,
        summary=summary,
        details={
            "network": "nin_c3_lr, batch 128, bf16, 30x30",
            "threads": torch.get_num_threads(),
            "bare_images_per_second": [round(speed, 1) for speed in bare],
            "loop_images_per_second": [round(speed, 1) for speed in ours],
            "loader_images_per_second": [round(speed) for speed in loader],
        },
        command="python benchmarks/loop.py",
        n=ROUNDS,
        packages=("grain",),
    )
    print(summary)


if __name__ == "__main__":
    main()
