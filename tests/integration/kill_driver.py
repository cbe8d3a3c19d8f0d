"""Trains a small network in forked children, kills them at random moments, and compares what is left. Run by tests.

    python kill_driver.py FOLDER --seed 0 --kills 20 KEY=VALUE …

Prints JSON: how many different weights the undisturbed run and the disturbed ones ended with, and the kills that hit.
"""

import argparse
import hashlib
import importlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

from cruciform.conversion.convert import plan_conversion
from cruciform.data.sets.cifar10 import FILES
from cruciform.store.directory import Base, save
from cruciform.store.open_reference import open_reference
from cruciform.training.engine.loop import train
from cruciform.training.recipe.python_objects import PythonObjects
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.run.checkpoint import Checkpoints
from cruciform.training.run.run import Run
from cruciform.training.runtime.runtime import SingleProcess
from cruciform.training.tables.table import read_table

SAMPLES = 100
BASE = {
    "model": {"name": "the test's own"},
    "train_transforms": [{"kind": "random-crop", "size": 32, "padding": 4}, {"kind": "hflip"}],
    "schedule": {"kind": "cosine", "warmup_epochs": 1},
    "loss": {"label_smoothing": 0.1, "mixup": 0.2},
    "ema": 0.9,
    "epochs": 4,
    "batch_size": 16,
    "evaluation": {"batch_size": 64},
    "log": {"tensorboard": False, "steps": 1},
}


def import_ahead() -> None:
    """Imports what a training imports when it begins. It takes five times as long as the training does here: children
    that had to do it were killed in the middle of it, and hardly ever while they trained.
    """
    for name in ("grain.python", "optuna", "torch._dynamo"):
        importlib.import_module(name)


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.3),
        nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip


def write_data(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    numbers = np.random.default_rng(0)
    for name in (*FILES["train"], *FILES["test"]):
        records = numbers.integers(0, 256, (SAMPLES // 5, 3073), dtype=np.uint8)
        records[:, 0] %= 10
        (folder / name).write_bytes(records.tobytes())


def write_teacher(folder: Path) -> str:
    base = Base("cifar_fast", {"widths": [8, 8, 8], "num_classes": 10})
    model = open_reference(base.reference or "", base.options).model
    save(model, folder, plan_conversion(model, "full", input_size=(3, 32, 32)), base=base)
    return str(folder.absolute())


def start(recipe: Recipe, run: Run) -> int:
    """Trains in a child; the parent has never used torch's threads, so that it may fork."""
    child = os.fork()
    if child:
        return child
    try:
        torch.set_num_threads(1)
        train(recipe, run, SingleProcess(torch.device("cpu")), resume=True, inputs=PythonObjects(model=network()))
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def kill_after(seconds: float, child: int) -> int:
    """Kills a child after some time, unless it has ended by then; returns its status."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def weights(run: Run) -> str:
    checkpoint, problems = Checkpoints(run.directory / "checkpoints").load_newest()
    if checkpoint is None or problems:
        sys.exit(f"no whole newest checkpoint: {problems}")
    digest = hashlib.sha256()
    for name in sorted(checkpoint.tensors):
        digest.update(name.encode() + checkpoint.tensors[name].numpy().tobytes())
    return digest.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--optimizer", default="sgd")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--distill", action="store_true", help="learn from a teacher, too")
    parser.add_argument("--every", type=int, default=0, help="steps between checkpoints; 0: at the end of epochs only")
    given = parser.parse_args()
    import_ahead()
    data = given.folder / "data"
    write_data(data)
    recipe = read_table(
        Recipe,
        {
            **BASE,
            "data": {"kind": "cifar10", "path": str(data.absolute()), "threads": 1},
            "optimizer": {"kind": given.optimizer, "lr": 0.01, "weight_decay": 0.01},
            "precision": given.precision,
            "checkpoint": {"steps": given.every or None},
            **({"distill": {"teacher": write_teacher(given.folder / "teacher")}} if given.distill else {}),
        },
        "the test's recipe",
    )
    whole = Run(given.folder / "whole")
    began = time.monotonic()
    if os.waitpid(start(recipe, whole), 0)[1]:
        sys.exit("the undisturbed run failed")
    usual = time.monotonic() - began
    ended = {weights(whole)}
    broken = Run(given.folder / "broken")
    chance = random.Random(given.seed)
    hits = runs = 0
    while hits < given.kills:
        fresh, began = not broken.exists, time.monotonic()
        status = kill_after(chance.uniform(0.02, usual), start(recipe, broken))
        runs += 1
        hits += os.WIFSIGNALED(status)
        if not os.WIFSIGNALED(status):  # it ended before it was killed: another begins
            if fresh:
                usual = min(usual, time.monotonic() - began)  # the disk may have been busy when it was measured first
            if os.waitstatus_to_exitcode(status):
                sys.exit("a disturbed run failed")
            ended.add(weights(broken))
            broken = Run(given.folder / f"broken-{runs}")
        if runs > 10 * given.kills:
            sys.exit(f"only {hits} of {runs} kills hit")
    if os.waitpid(start(recipe, broken), 0)[1]:
        sys.exit("the last start failed")
    ended.add(weights(broken))
    print(json.dumps({"outcomes": len(ended), "hits": hits, "starts": runs + 1}))


if __name__ == "__main__":
    main()
