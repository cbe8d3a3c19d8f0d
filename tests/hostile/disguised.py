"""Pickles in every place that a file is read from: none is ever run."""

import io
import json
import os
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import checkpoints
import datasets
import networks
import numpy as np
import predictions
from kind import Silent, Trial, hostile

from cruciform.data.samples.source import Opening
from cruciform.data.sets.cifar10 import FILES, open_cifar10
from cruciform.data.sets.folder import decode
from cruciform.data.sets.volumes import open_volumes
from cruciform.data.shard_write import list_items
from cruciform.data.sharding.shard_index import INDEX, MANIFEST
from cruciform.errors import CruciformError
from cruciform.plan import LayerPlan
from cruciform.training.recipe.cookbook import load_recipe
from cruciform.training.run.checkpoint import TENSORS, VALUES, Checkpoints, load
from cruciform.training.run.journal import read_journal

CODE = "open(__import__('os').environ['HOSTILE_CANARY'], 'w').close()"


def _text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def _short(value: str) -> bytes:
    return b"\x8c" + bytes([len(value)]) + value.encode()


def _gadgets() -> list[bytes]:
    """Returns pickles that run code when they are read: by every opcode that can call something."""
    call = _text(CODE) + b"\x85R."
    made = [
        b"cbuiltins\nexec\n" + call,
        b"c__builtin__\nexec\n" + call,
        b"\x80\x02cbuiltins\nexec\n" + call,
        b"\x80\x04" + _short("builtins") + _short("exec") + b"\x93" + call,
        b"cbuiltins\neval\n" + _text(CODE) + b"\x85R.",
        b"(" + _text(CODE) + b"ibuiltins\nexec\n.",
        b"(cbuiltins\nexec\n" + _text(CODE) + b"o.",
        b"cos\nsystem\n" + _text('touch "$HOSTILE_CANARY"') + b"\x85R.",
        b"cposix\nsystem\n" + _text('touch "$HOSTILE_CANARY"') + b"\x85R.",
        b"csubprocess\nPopen\n((" + _text("sh") + _text("-c") + _text('touch "$HOSTILE_CANARY"') + b"ltR.",
        b"cbuiltins\ngetattr\n(cbuiltins\n__import__\n" + _text("__call__") + b"tR" + _text("os") + b"\x85R.",
        b"]cbuiltins\nexec\n" + _text(CODE) + b"\x85Ra.",
        b"}" + _text("weights") + b"cbuiltins\nexec\n" + _text(CODE) + b"\x85Rs.",
        b"ctorch\nload\n" + _text("/x") + b"\x85R0cbuiltins\nexec\n" + call,
    ]
    head = b"\x80\x02"
    made += [head + one for one in made[4:8]]
    for name in ("archive/data.pkl", "data.pkl"):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr(name, made[0])
            archive.writestr("archive/version", "3\n")
        made.append(file.getvalue())
    array = io.BytesIO()
    np.lib.format.write_array_header_1_0(array, {"descr": "|O", "fortran_order": False, "shape": (1,)})
    made.append(array.getvalue() + made[0])
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in ("train_images.npy", "train_labels.npy"):
            archive.writestr(name, array.getvalue() + made[0])
    made.append(file.getvalue())
    text = json.dumps({"__reduce__": ["os.system", "x"], "py/object": "os.system"}).encode()
    made += [text, struct.pack("<Q", len(text)) + text + made[0], b"\x93NUMPY" + made[0]]
    return made


GADGETS = _gadgets()


def prepare(folder: Path) -> None:
    for name, make in (("checkpoint", checkpoints.prepare), ("set", datasets.prepare_shards),
                       ("model", networks.prepare_directory), ("artifact", networks.prepare_artifact),
                       ("parts", predictions.prepare)):  # fmt: skip
        (folder / name).mkdir()
        make(folder / name)


def _in_checkpoint(file: str) -> Callable[[Trial, bytes], None]:
    def place(trial: Trial, data: bytes) -> None:
        inner = trial._replace(seeds=trial.seeds / "checkpoint")
        folder = checkpoints.copied(inner) / checkpoints.name_of(12)
        (folder / file).write_bytes(data)
        if file != MANIFEST:
            checkpoints.sign(folder)
        try:
            checkpoints.become(load(folder))
        except CruciformError:
            (folder / MANIFEST).unlink()  # what only going on would refuse is set aside, as a person would
            checkpoints.check_newest(inner)
        else:
            raise Silent("a pickle was taken for a checkpoint")

    return place


def _in_set(file: str) -> Callable[[Trial, bytes], None]:
    def place(trial: Trial, data: bytes) -> None:
        inner = trial._replace(seeds=trial.seeds / "set")
        files = dict(datasets.originals(inner.seeds)[0])
        files[file] = data
        if file == INDEX:
            files[MANIFEST] = datasets.resized(files[MANIFEST], {INDEX: len(data)})
        datasets.read_set(inner, files)

    return place


def _in_model(file: str) -> Callable[[Trial, bytes], None]:
    def place(trial: Trial, data: bytes) -> None:
        import hashlib

        shutil.copytree(trial.seeds / "model" / "model", trial.scratch)
        (trial.scratch / file).write_bytes(data)
        if file == networks.WEIGHTS:
            card = json.loads((trial.scratch / networks.CARD).read_text())
            card["weights"]["sha256"] = hashlib.sha256(data).hexdigest()
            (trial.scratch / networks.CARD).write_text(json.dumps(card))
        networks.load(trial.scratch)

    return place


def _in_artifact(file: str) -> Callable[[Trial, bytes], None]:
    def place(trial: Trial, data: bytes) -> None:
        shutil.copytree(trial.seeds / "artifact" / "artifact", trial.scratch)
        (trial.scratch / file).write_bytes(data)
        networks.sign(trial.scratch)
        networks.open_artifact(trial.scratch)

    return place


def _in_torchs_archive(trial: Trial, data: bytes) -> None:
    """Where PyTorch would run it: it must not be opened, whatever the artifact says of itself."""
    shutil.copytree(trial.seeds / "artifact" / "artifact", trial.scratch)
    report = json.loads((trial.scratch / networks.REPORT).read_text())
    (trial.scratch / networks.REPORT).write_text(json.dumps({**report, "target": "torch"}))
    with zipfile.ZipFile(trial.scratch / "model.pt2", "w") as archive:
        archive.writestr("model/data/sample_inputs/model.pt", data)
    networks.sign(trial.scratch)
    networks.open_artifact(trial.scratch)


def _in_file(name: str, read: Callable[[Path], object]) -> Callable[[Trial, bytes], None]:
    def place(trial: Trial, data: bytes) -> None:
        trial.scratch.mkdir()
        path = trial.scratch / name
        path.write_bytes(data)
        read(path)

    return place


def _cifar(path: Path) -> object:
    for name in FILES["train"]:
        if not (path.parent / name).exists():
            os.link(path, path.parent / name)
    return open_cifar10(Opening(path.parent, "train"))


PLACES: tuple[Callable[[Trial, bytes], None], ...] = (
    _in_checkpoint(TENSORS),
    _in_checkpoint(VALUES),
    _in_checkpoint(MANIFEST),
    _in_set(INDEX),
    _in_set(MANIFEST),
    _in_set("shard-000000.tar"),
    _in_model(networks.WEIGHTS),
    _in_model(networks.CARD),
    _in_artifact("model.onnx"),
    _in_artifact(networks.REPORT),
    _in_torchs_archive,
    _in_file("x.jpg", lambda path: decode(path.read_bytes())),
    _in_file("x.npz", lambda path: open_volumes(Opening(path, "train"))),
    _in_file("x.toml", load_recipe),
    _in_file("recipe.json", lambda path: load_recipe(path.parent)),
    _in_file("x.csv", list_items),
    _in_file("log.jsonl", read_journal),
    _in_file("data_batch_1.bin", _cifar),
    _in_file("plan.json", lambda path: LayerPlan.from_json(path.read_bytes().decode("latin-1"))),
    _in_file("step-00000001", lambda path: Checkpoints(path.parent).load_newest()),
)


@hostile("pickles disguised", len(GADGETS) * len(PLACES), prepare)
def attack(trial: Trial) -> None:
    PLACES[trial.number // len(GADGETS)](trial, GADGETS[trial.number % len(GADGETS)])
