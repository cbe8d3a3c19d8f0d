"""Real runs of the command line on a small data set, watched by their logs: what tests of several processes share."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from kill_driver import write_data
from torch import Tensor

from cruciform.training.run.journal import read_journal
from cruciform.training.run.run import Run

RECIPE = """
epochs = {epochs}
batch_size = 16
train_transforms = [{{kind = "random-crop", size = 32, padding = 4}}, {{kind = "hflip"}}]
model = {{name = "nin_c3_lr", options = {{dropout = 0.0}}}}
data = {{kind = "cifar10", path = "{data}", threads = 1}}
optimizer = {{kind = "sgd", lr = 0.005}}
checkpoint = {{steps = 3}}
log = {{steps = 1, samples = true, tensorboard = false}}
"""
SAMPLES = 100


def write_recipe(folder: Path, epochs: int) -> Path:
    """Writes the data and a recipe for it."""
    if not (folder / "data").is_dir():
        write_data(folder / "data")
    path = folder / f"recipe{epochs}.toml"
    path.write_text(RECIPE.format(data=folder / "data", epochs=epochs))
    return path


def command(*words: object) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "cruciform", "train", *map(str, words)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "CRUCIFORM_TIMEOUT": "15"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: "subprocess.Popen[str]", timeout: float = 240) -> str:
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.terminate()  # it takes its workers with it; left alone, it would disturb the tests after this one
        output, _ = process.communicate(timeout=60)
        pytest.fail(f"not done after {timeout} s:\n{output}")
    assert process.returncode == 0, output
    return output


def weights(run: Path) -> dict[str, Tensor]:
    checkpoint, problems = Run(run).checkpoints().load_newest()
    assert checkpoint is not None
    assert not problems
    return checkpoint.tensors


def wait_for(run: Path, step: int, process: "subprocess.Popen[str]", *, starts: int = 1) -> None:
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline and process.poll() is None:
        lines = read_journal(run / "log.jsonl")
        if lines and max(line.get("step", 0) for line in lines) >= step:
            return
        time.sleep(0.05)
    process.kill()
    raise AssertionError(f"step {step} was not reached: {process.communicate()[0]}")


def samples_of_epochs(run: Path, epochs: int, steps_per_epoch: int) -> list[Counter[int]]:
    """Returns what each epoch saw; where a step was taken more than once, its last time counts."""
    last: dict[tuple[int, int], tuple[str, list[int]]] = {}
    latest: dict[int, str] = {}
    lines = [line for file in (run / "samples").iterdir() for line in map(json.loads, file.read_text().splitlines())]
    for line in sorted(lines, key=lambda line: line["time"]):
        if line["rank"] == 0:
            latest[line["step"]] = line["time"]
        last[line["step"], line["rank"]] = line["time"], line["numbers"]
    seen = [Counter[int]() for _ in range(epochs)]
    for (step, rank), (moment, numbers) in last.items():
        # A rank that no longer exists when the step was taken for the last time has nothing to say about it.
        if rank == 0 or abs(_seconds(moment) - _seconds(latest[step])) < 2:
            seen[(step - 1) // steps_per_epoch].update(numbers)
    return seen


def _seconds(moment: str) -> float:
    import datetime as dt

    return dt.datetime.fromisoformat(moment).timestamp()


def workers(parent: int, mark: bytes) -> list[int]:
    """Returns the descendants of a process whose command line holds a mark."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            status = (path / "stat").read_text().rpartition(")")[2].split()
            children.setdefault(int(status[1]), []).append(int(path.name))
        except OSError:
            continue
    found, todo = [], [parent]
    while todo:
        for child in children.get(todo.pop(), []):
            todo.append(child)
            try:
                if mark in (Path("/proc") / str(child) / "cmdline").read_bytes():
                    found.append(child)
            except OSError:
                continue
    return found
