"""Pipes, devices, folders and links to nowhere in place of every file that is read: nothing waits for them."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import checkpoints
import datasets
import model_bombs
import networks
import numpy as np
import predictions
from kind import Silent, Trial, hostile
from PIL import Image as Pillow

from cruciform.budgets.costs import _read as read_costs
from cruciform.cli.networks.doctor import _read_images
from cruciform.coverage.coverage_run import read_findings as read_coverage
from cruciform.data.samples.source import Opening
from cruciform.data.sets.cifar10 import FILES, open_cifar10
from cruciform.data.sets.folder import FolderSource
from cruciform.data.sets.shards import ShardSource
from cruciform.data.sets.volumes import open_volumes
from cruciform.data.shard_verify import verify_shards
from cruciform.data.shard_write import list_items
from cruciform.data.sharding.shard_index import INDEX, MANIFEST, NAMES
from cruciform.data.sharding.storage import open_storage
from cruciform.deployment.artifact import open_artifact
from cruciform.deployment.bench.bench_result import read_parts
from cruciform.errors import DataError
from cruciform.files import read_json
from cruciform.prediction.inputs import FolderInputs
from cruciform.prediction.predictor import open_predictor
from cruciform.reports.facts import _reasons
from cruciform.store.directory import base_of, copy_network, load, refuse_other_directory
from cruciform.training.engine.trained_run import trained_network
from cruciform.training.experiments.race_result import read_finishes
from cruciform.training.recipe.cookbook import load_recipe
from cruciform.training.run.checkpoint import TENSORS, VALUES
from cruciform.training.run.run import Run


def _pipe_elsewhere(path: Path) -> None:
    os.mkfifo(path.with_name("pipe-elsewhere"))
    path.symlink_to("pipe-elsewhere")


def _link(target: str) -> Callable[[Path], None]:
    def put(path: Path) -> None:
        path.symlink_to(target)

    put.__name__ = target
    return put


PUTS: tuple[Callable[[Path], None], ...] = (
    os.mkfifo,
    _pipe_elsewhere,
    Path.mkdir,
    _link("/dev/zero"),
    _link("/dev/random"),
    _link("/dev/null"),
    _link("/dev/stdin"),
    _link("/dev/tty"),
    _link("itself"),
    _link("."),
    _link("/dev/fd/0"),
)


class Place(NamedTuple):
    """A file that is read.

    Attributes:
        folder: What it lies in, of the kind's seeds; None: it is made, empty.
        file: Its name there; a pattern where it has a checksum in it.
        read: Reads it.
        needed: Whether it must be refused, and not only passed over.
    """

    folder: str | None
    file: str
    read: Callable[[Path], object]
    needed: bool = True


def read_shards(folder: Path) -> None:
    source = ShardSource(open_storage(str(folder)))
    for number in range(len(source)):
        source[number]


def verify(folder: Path) -> None:
    if not verify_shards(folder):
        raise Silent("a set of shards is said to be whole")
    raise DataError("verified, and found wanting")


def continue_prediction(folder: Path) -> None:
    predictions.make(folder.with_name("out.parquet"), join=True)


def all_images(source: FolderSource | FolderInputs) -> None:
    for number in range(len(source)):
        source[number] if isinstance(source, FolderSource) else source.image(number)


CHECKPOINT = checkpoints.name_of(checkpoints.STEPS[-1])
PLACES = (
    *(Place("model/model", name, read) for name in ("model.json", "model.safetensors")
      for read in (load, base_of, lambda folder: copy_network(folder, folder.with_name("copy")))),
    Place("model/model", "model.json", refuse_other_directory),
    Place("model/model", "report.json", _reasons, needed=False),
    *(Place("run/run", name, read) for name in ("recipe.json", f"checkpoints/step-00000001/{TENSORS}")
      for read in (trained_network, open_predictor)),
    Place("run/run", "log.jsonl", lambda folder: Run(folder).status(), needed=False),
    Place("run/run", "lock", lambda folder: Run(folder).status(), needed=False),
    *(Place("checkpoint/checkpoints", f"{CHECKPOINT}/{name}", lambda folder: checkpoints.load(folder / CHECKPOINT))
      for name in (TENSORS, VALUES, MANIFEST)),
    *(Place("set/set", name, read) for name in (MANIFEST, INDEX, NAMES, "shard-000000.tar")
      for read in (read_shards, verify)),
    *(Place("artifact/artifact", name, open_artifact) for name in (MANIFEST, "deploy.json", "model.onnx")),
    *(Place("parts/out.parquet.parts", name, continue_prediction, needed=False) for name in ("job.json", "00000001-*")),
    Place(None, "x.toml", lambda folder: load_recipe(folder / "x.toml")),
    Place(None, "x.csv", lambda folder: list_items(folder / "x.csv")),
    Place(None, "x.npz", lambda folder: open_volumes(Opening(folder / "x.npz", "train"))),
    Place(None, "x.npy", lambda folder: _read_images(folder / "x.npy")),
    Place(None, "x.json", lambda folder: read_json(folder / "x.json")),
    Place(None, "x.json", lambda folder: read_finishes(folder / "x.json"), needed=False),
    Place(None, "x.json", lambda folder: read_costs(folder / "x.json", 1), needed=False),
    Place(None, "x.json", lambda folder: read_parts(folder / "x.json")),
    Place(None, "x.jsonl", lambda folder: list(read_coverage(folder / "x.jsonl", {})), needed=False),
    Place("images", "class0/00.png", lambda folder: all_images(FolderSource(folder, short_side=None))),
    Place("images", "class0/00.png", lambda folder: all_images(FolderInputs(folder, None)), needed=False),
    Place("cifar", FILES["train"][2], lambda folder: open_cifar10(Opening(folder, "train"))),
)  # fmt: skip


def prepare(folder: Path) -> None:
    for name, make in (("checkpoint", checkpoints.prepare), ("set", datasets.prepare_shards),
                       ("model", networks.prepare_directory), ("artifact", networks.prepare_artifact),
                       ("parts", predictions.prepare), ("run", model_bombs.prepare_run)):  # fmt: skip
        (folder / name).mkdir()
        make(folder / name)
    (folder / "images" / "class0").mkdir(parents=True)
    for name in ("00.png", "01.png"):
        Pillow.new("RGB", (8, 8)).save(folder / "images" / "class0" / name)
    (folder / "cifar").mkdir()
    for name in FILES["train"]:
        (folder / "cifar" / name).write_bytes(np.zeros(3073, np.uint8).tobytes())


@hostile("no regular files", len(PLACES) * len(PUTS), prepare)
def attack(trial: Trial) -> None:
    place, put = PLACES[trial.number // len(PUTS)], PUTS[trial.number % len(PUTS)]
    folder = trial.scratch / (Path(place.folder).name if place.folder else "made")
    if place.folder:
        shutil.copytree(trial.seeds / place.folder, folder)
    else:
        folder.mkdir(parents=True)
    path = next(folder.glob(place.file), folder / place.file)
    path.unlink(missing_ok=True)
    put(path)
    try:
        place.read(folder)
    except OSError as error:  # a command says what it is about, and ends
        if error.filename is None or error.errno not in (errno.EINVAL, errno.EISDIR, errno.ENOENT, errno.ELOOP,
                                                         errno.ENXIO):  # fmt: skip
            raise
        raise DataError(str(error)) from error
    if place.needed:
        raise Silent(f"{place.file} was read, which is {getattr(put, '__name__', put)}")
