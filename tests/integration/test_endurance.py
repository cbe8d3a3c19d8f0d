"""What must not grow: memory, threads, descriptors, disks and shared memory, however long it goes on."""

import gc
import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from cruciform.data.loader import Batch, Loader
from cruciform.data.order import Order
from cruciform.data.samples.source import ArraySource
from cruciform.training.engine.learner import Learner
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.run.checkpoint import Checkpoints
from cruciform.training.runtime.runtime import SingleProcess
from cruciform.training.tables.table import read_table

STEPS, CHECKPOINTS, RESTARTS = 2_000, 500, 50
PER_STEP = 1024  # bytes that memory may grow by


def resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def source(samples: int = 256, side: int = 8) -> ArraySource:
    numbers = np.random.default_rng(0)
    images = numbers.integers(0, 256, (samples, side, side, 3), dtype=np.uint8)
    return ArraySource(images, numbers.integers(0, 2, samples), ("a", "b"))


def learner() -> Learner:
    table = {"model": {"name": "mine"}, "data": {"kind": "cifar10", "path": "x"}, "epochs": 1, "batch_size": 8,
             "optimizer": {"kind": "adamw", "lr": 0.01}, "ema": 0.9}  # fmt: skip
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 2))
    return Learner(read_table(Recipe, table, "the test's recipe"), model, SingleProcess(torch.device("cpu")))


@pytest.mark.slow
def test_two_thousand_steps_leave_memory_threads_and_descriptors_flat() -> None:
    trained = learner()
    loader = Loader(source(), Order(256, 8, seed=0), threads=2)
    seen = []
    with loader.batches(range(STEPS)) as batches:
        for step, batch in enumerate(batches):
            trained.step(batch, step, 1.0, steps=STEPS)
            if step in (STEPS // 4, STEPS - 1):
                seen.append((resident(), threading.active_count(), descriptors()))
    (memory, threads, files), (memory_after, threads_after, files_after) = seen
    assert memory_after - memory < PER_STEP * STEPS * 3 // 4
    assert threads_after == threads
    assert files_after == files


@pytest.mark.slow
def test_five_hundred_checkpoints_leave_the_disk_flat(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=3)
    tensors, values = learner().state()
    sizes = []
    for step in range(1, CHECKPOINTS + 1):
        checkpoints.save(step, tensors, values)
        if step in (3, CHECKPOINTS):
            sizes.append(sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()))
    assert abs(sizes[1] - sizes[0]) < 100
    assert [path.name for path in sorted((tmp_path / "checkpoints").iterdir())] == [
        f"step-{step:08d}" for step in range(CHECKPOINTS - 2, CHECKPOINTS + 1)
    ]


@pytest.mark.slow
def test_fifty_restarts_of_the_loader_leave_nothing_behind() -> None:
    loader = Loader(source(), Order(256, 8, seed=0), threads=2)
    shared = Path("/dev/shm")  # noqa: S108
    mine = f"{os.getpid()}"

    def start() -> None:
        with loader.batches(range(20)) as batches:
            next(batches)

    for _ in range(5):
        start()
    time.sleep(0.5)
    threads, files, before = threading.active_count(), descriptors(), {path.name for path in shared.glob(f"*{mine}*")}
    for _ in range(RESTARTS):
        start()
    time.sleep(0.5)
    assert threading.active_count() <= threads + 2
    assert descriptors() <= files
    assert {path.name for path in shared.glob(f"*{mine}*")} == before


@pytest.mark.slow
def test_a_reader_ten_times_faster_than_the_training_waits_for_it() -> None:
    loader = Loader(source(samples=512, side=128), Order(512, 32, seed=0), threads=2)  # 1.5 MB a batch
    read = []
    began = time.monotonic()

    class Counting(Loader):
        def read(self, step: int) -> Batch:
            read.append(step)
            return super().read(step)

    counting = Counting(loader.source, loader.order, threads=2)
    sizes = []
    with counting.batches(range(10_000)) as batches:
        for used, _ in enumerate(batches, start=1):
            time.sleep(0.05)
            assert len(read) - used <= 8, "more is read ahead than the buffer holds"
            if used in (20, 200):
                sizes.append(resident())
            if used == 200:
                break
    assert time.monotonic() - began > 10
    assert sizes[1] - sizes[0] < 10 * 2**20
