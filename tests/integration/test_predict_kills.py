"""Predictions of real processes that are killed: every input once, and the same bytes as of one that was left alone."""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import pytest
from PIL import Image as Pillow

from cruciform.api.train import train
from cruciform.training.recipe.cookbook import load_recipe

sys.path.insert(0, str(Path(__file__).parent))
from running import workers

COUNT, PART, KILLS = 3000, 50, 10


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    numbers = np.random.default_rng(0)
    for index in range(COUNT):
        path = folder / f"class{index % 3}" / f"{index:05d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Pillow.fromarray(numbers.integers(0, 256, (34, 34, 3), dtype=np.uint8)).save(path, compress_level=1)
    for split in ("train", "val"):
        (folder.parent / f"{folder.name}-data").mkdir(exist_ok=True)
        (folder.parent / f"{folder.name}-data" / split).symlink_to(folder)
    return folder


@pytest.fixture(scope="module")
def run(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("runs") / "run"
    changes = [f'data.path="{images.parent / (images.name + "-data")}"', "data.kind=folder", "epochs=1",
               "batch_size=512",
               "model.options.widths=[8, 8, 8]", "log.tensorboard=false", "precision=fp32",
               'eval_transforms=[{kind="center-crop", size=32}]',
               'train_transforms=[{kind="random-crop", size=32}]']  # fmt: skip
    train(load_recipe("cifar_fast_lr_cifar10", changes), directory)
    return directory


def start(run: Path, images: Path, out: Path, *more: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "cruciform", "predict", run, images, "-o", out, "--part", str(PART), *more],
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip


def parts_of(out: Path) -> int:
    folder = out.with_name(f"{out.name}.parts")
    return len(list(folder.glob("0*.parquet"))) if folder.is_dir() else 0


def finish(process: "subprocess.Popen[str]", timeout: float = 240) -> None:
    output, _ = process.communicate(timeout=timeout)
    assert process.returncode == 0, output


@pytest.mark.slow
@pytest.mark.timeout(480)
def test_ten_kills_leave_no_trace(run: Path, images: Path, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole.parquet", tmp_path / "killed.parquet"
    finish(start(run, images, whole))
    chance, hits = random.Random(0), 0
    for _ in range(KILLS):
        process = start(run, images, killed)
        reached, deadline = parts_of(killed) + chance.randint(1, 4), time.monotonic() + 60
        while parts_of(killed) < reached and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            hits += 1
        process.communicate()
    assert hits == KILLS, "it was faster than the kills; more images are needed"
    finish(start(run, images, killed))
    numbers = parquet.read_table(killed, columns=["number"])["number"].to_pylist()
    assert numbers == list(range(COUNT))
    assert killed.read_bytes() == whole.read_bytes()


@pytest.mark.slow
@pytest.mark.timeout(480)
def test_on_ray_a_killed_worker_leaves_no_trace(run: Path, images: Path, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole.parquet", tmp_path / "killed.parquet"
    finish(start(run, images, whole))
    process = start(run, images, killed, "--ray", "--workers", "2")
    hits = 0
    deadline = time.monotonic() + 200
    reached = 1
    while hits < 2 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
        if parts_of(killed) >= reached:
            for worker in workers(process.pid, b"_Worker")[:1]:
                with suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)
                    hits += 1
                    reached = parts_of(killed) + 5
    finish(process, 400)
    assert hits == 2
    assert killed.read_bytes() == whole.read_bytes()
