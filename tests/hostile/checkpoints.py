"""Checkpoints and logs, mutated: damaged by chance, and forged by one who gets all checksums right."""

import hashlib
import json
import shutil
import struct
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch
from kind import Silent, Trial, hostile
from mutate import TEXTS, change, mutate_bytes, mutate_json, odd
from torch import Tensor, nn

from cruciform.errors import CheckpointError, CruciformError
from cruciform.files import MANIFEST, _checksum
from cruciform.training.engine.learner import Learner
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.run.checkpoint import TENSORS, VALUES, Checkpoint, Checkpoints, load
from cruciform.training.run.journal import read_journal
from cruciform.training.run.progress import read_progress
from cruciform.training.run.run import Run
from cruciform.training.runtime.runtime import SingleProcess
from cruciform.training.tables.table import read_table

STEPS = (4, 8, 12)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))


def recipe() -> Recipe:
    table = {"model": {"name": "mine"}, "data": {"kind": "cifar10", "path": "x"}, "epochs": 3, "batch_size": 4,
             "optimizer": {"kind": "sgd", "lr": 0.1}, "ema": 0.9}  # fmt: skip
    return read_table(Recipe, table, "the test's recipe")


def prepare(folder: Path) -> None:
    learner = Learner(recipe(), network(), SingleProcess(torch.device("cpu")))
    progress = {"evaluated": 0, "loss": 0.5, "samples": 4, "seconds": 1.0, "bad_steps": 0, "bad_samples": [],
                "plateau": {}}  # fmt: skip
    for step in STEPS:
        for parameter in learner.model.parameters():
            parameter.grad = torch.full_like(parameter, 0.1 * step)
        learner.optimizer.step()
        tensors, values = learner.state()
        Checkpoints(folder / "checkpoints", keep=9).save(
            step, tensors, {"progress": {"step": step, **progress}, "learner": values}
        )


def name_of(step: int) -> str:
    return f"step-{step:08d}"


@cache
def originals(folder: Path) -> dict[int, Checkpoint]:
    return {step: load(folder / "checkpoints" / name_of(step)) for step in STEPS}


def copied(trial: Trial) -> Path:
    shutil.copytree(trial.seeds / "checkpoints", trial.scratch)
    return trial.scratch


def check_newest(trial: Trial) -> None:
    """Whatever was done to the newest checkpoint: one is found, and it is what was saved."""
    found, problems = Checkpoints(trial.scratch).load_newest()
    if found is None:
        raise Silent("no whole checkpoint was found, though two are")
    check_same(found, trial)
    if found.step != STEPS[-1]:
        raise CheckpointError("; ".join(problems) or "")


def check_same(found: Checkpoint, trial: Trial) -> None:
    saved = originals(trial.seeds).get(found.step)
    if saved is None or saved.values != found.values or set(saved.tensors) != set(found.tensors):
        raise Silent(f"a checkpoint of step {found.step} was taken that nobody saved")
    if not all(torch.equal(tensor, found.tensors[name]) for name, tensor in saved.tensors.items()):
        raise Silent(f"the checkpoint of step {found.step} holds other weights")


@hostile("damaged checkpoints", 2_000, prepare)
def attack_files(trial: Trial) -> None:
    newest = copied(trial) / name_of(STEPS[-1])
    path = newest / trial.random.choice((TENSORS, VALUES, MANIFEST))
    how = trial.random.random()
    if how < 0.85:
        data = path.read_bytes()
        bad = mutate_bytes(data, trial.random)[1]
        path.write_bytes(bad)
    elif how < 0.9:
        path.unlink()
    elif how < 0.95:
        shutil.copy(trial.scratch / name_of(STEPS[0]) / path.name, path)
    else:
        (newest / trial.random.choice(("extra", ".hidden", "state.pt"))).write_bytes(b"x")
    check_newest(trial)


@hostile("checkpoint manifests", 2_500, prepare)
def attack_manifest(trial: Trial) -> None:
    path = copied(trial) / name_of(STEPS[-1]) / MANIFEST
    data = json.loads(path.read_text())
    signed = trial.random.random() < 0.5
    text = mutate_json(data, trial.random)
    if signed:
        data = change({key: value for key, value in data.items() if key != "checksum"}, trial.random)
        text = json.dumps({**data, "checksum": _checksum(data)}).encode() if isinstance(data, dict) else text
    path.write_bytes(text)
    with suppress(CheckpointError):
        load(path.parent)
    # What was signed anew is as true as what it says; but nothing may come of it than the library's own refusal.
    found, problems = Checkpoints(trial.scratch).load_newest()
    Checkpoints(trial.scratch, keep=2)._newest()
    if found is None:
        raise Silent("no whole checkpoint was found, though two are")
    if not signed:
        check_same(found, trial)
    if problems:
        raise CheckpointError("; ".join(problems))


def sign(folder: Path) -> None:
    """Makes all checksums of a checkpoint right, as a forger would."""
    data = json.loads((folder / MANIFEST).read_text())
    del data["checksum"]
    data["files"] = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in data["files"]}
    (folder / MANIFEST).write_text(json.dumps({**data, "checksum": _checksum(data)}))


@hostile("safetensors headers", 5_000, prepare)
def attack_header(trial: Trial) -> None:
    folder = copied(trial) / name_of(STEPS[-1])
    data = (folder / TENSORS).read_bytes()
    bad = mutate_header(data, trial)
    (folder / TENSORS).write_bytes(bad)
    sign(folder)
    found = load(folder)
    payload = len(bad) - 8 - struct.unpack("<Q", bad[:8])[0]
    if sum(tensor.nbytes for tensor in found.tensors.values()) != payload:
        raise Silent(f"tensors that do not fill the file's {payload} bytes were taken")
    become(found)


def mutate_header(data: bytes, trial: Trial) -> bytes:
    """Returns a safetensors file whose header was changed, and whose length is right or not."""
    random = trial.random
    length = struct.unpack("<Q", data[:8])[0]
    header: dict[str, Any] = json.loads(data[8 : 8 + length])
    how = random.random()
    if how < 0.6:
        key = random.choice(list(header))
        if random.random() < 0.8 and isinstance(header[key], dict):
            field = random.choice(("dtype", "shape", "data_offsets"))
            kinds = ("F64", "F16", "BF16", "I64", "I8", "U8", "BOOL", "F8_E5M2", "F8_E4M3", "U64", "C64", "F4", "X", "")
            if field == "dtype" and random.random() < 0.7:
                header[key] = {**header[key], "dtype": random.choice(kinds)}
            else:
                header[key] = {**header[key], field: change(header[key].get(field), random)}
        else:
            header = change(header, random) if random.random() < 0.5 else {**header, random.choice(TEXTS): odd(random)}
        text = json.dumps(header).encode()
    else:
        text = mutate_json(header, random)
    claimed = len(text) if random.random() < 0.8 else random.choice((0, 1, length, 2**20, 2**32, 2**63, 2**64 - 1))
    return struct.pack("<Q", claimed) + text + data[8 + length :]


def become(found: Checkpoint) -> None:
    """Goes on from a checkpoint as the loop does."""
    learner = Learner(recipe(), network(), SingleProcess(torch.device("cpu")))
    read_progress(found)
    learner.load_state_(found.tensors, found.part("learner"))
    tensors: dict[str, Tensor] = learner.state()[0]
    if set(tensors) - set(found.tensors):
        raise Silent(f"went on without {sorted(set(tensors) - set(found.tensors))[:3]}")


@hostile("forged states", 2_000, prepare)
def attack_values(trial: Trial) -> None:
    folder = copied(trial) / name_of(STEPS[-1])
    (folder / VALUES).write_bytes(mutate_json(json.loads((folder / VALUES).read_text()), trial.random))
    sign(folder)
    become(load(folder))


LINES: list[dict[str, Any]] = [
    {"event": "start", "time": "t", "seconds": 0.0, "step": 0, "steps": 9, "world": 1},
    {"event": "step", "time": "t", "seconds": 0.1, "step": 3, "loss": 2.0, "lr": 0.1, "norm": 1.0},
    {"event": "epoch", "time": "t", "seconds": 0.2, "step": 3, "epoch": 1, "top1": 0.5},
    {"event": "start", "time": "t", "seconds": 0.0, "step": 3, "steps": 9, "world": 1},
    {"event": "end", "time": "t", "seconds": 0.3, "step": 9, "state": "failed", "error": "DataError", "reason": "x"},
]


@hostile("log lines", 2_000)
def attack_log(trial: Trial) -> None:
    random = trial.random
    trial.scratch.mkdir()
    (trial.scratch / "recipe.json").write_text(recipe().model_dump_json())
    lines = [json.dumps(line).encode() for line in LINES]
    place = random.randrange(len(lines))
    lines[place] = mutate_json(LINES[place], random)
    data = b"\n".join(lines) + b"\n"
    if random.random() < 0.3:
        data = mutate_bytes(data, random)[1]
    run = Run(trial.scratch)
    run.log.write_bytes(data)
    read_journal(run.log)
    status = run.status()
    if status["state"] not in ("done", "interrupted", "failed", "stopped") or type(status["step"]) is not int:
        raise Silent(f"the run is said to be {status['state']!r} at step {status['step']!r}")
    from cruciform.training.backends.backend import check_end

    try:
        check_end(run)
    except CruciformError:
        pass
    else:
        if b'"done"' not in data:
            raise Silent("a run that failed is said to be done")
