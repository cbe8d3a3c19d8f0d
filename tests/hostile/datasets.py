"""Data sets, mutated: shards and their index and manifest, tables of images, CIFAR's batches, archives of volumes."""

import io
import json
import shutil
import zipfile
from functools import cache
from pathlib import Path
from random import Random

import numpy as np
from kind import Silent, Trial, hostile
from mutate import NUMBERS, TEXTS, mutate_bytes, mutate_json
from PIL import Image as Pillow

from cruciform.data.samples.source import Opening
from cruciform.data.sets.cifar10 import FILES, open_cifar10
from cruciform.data.sets.shards import ShardSource
from cruciform.data.sets.volumes import open_volumes
from cruciform.data.shard_write import list_items, write_shards
from cruciform.data.sharding.shard_index import INDEX, MANIFEST, NAMES, SAMPLE_RECORD
from cruciform.data.sharding.shard_options import ShardOptions
from cruciform.data.sharding.storage import open_storage
from cruciform.errors import CruciformError

SAMPLES = 12


def prepare_shards(folder: Path) -> None:
    numbers = np.random.default_rng(0)
    for index in range(SAMPLES):
        path = folder / "images" / f"class{index % 3}" / f"{index:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Pillow.fromarray(numbers.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(path)
    write_shards(list_items(folder / "images"), folder / "set", ShardOptions(size=1_000, threads=1))


@cache
def originals(folder: Path) -> tuple[dict[str, bytes], list[tuple[bytes, int, str]], tuple[str, ...]]:
    """Returns all files of the set, all samples, and the classes."""
    source = ShardSource(open_storage(str(folder / "set")))
    samples = [
        (source.read(number), int(source.index.records[number]["label"]), source.index.name(number))
        for number in range(SAMPLES)
    ]
    return {path.name: path.read_bytes() for path in (folder / "set").iterdir()}, samples, source.classes


def read_set(trial: Trial, files: dict[str, bytes]) -> None:
    """Reads all samples of a set; each must be what was written, or be refused."""
    trial.scratch.mkdir()
    for name, data in files.items():
        (trial.scratch / name).write_bytes(data)
    _, samples, classes = originals(trial.seeds)
    source = ShardSource(open_storage(str(trial.scratch)), short_side=None)
    refused: CruciformError | None = None
    for number in range(min(len(source), 50)):
        try:
            data, sample, name = source.read(number), source[number], source.index.name(number)
        except CruciformError as error:
            refused = error
            continue
        if number >= SAMPLES or (data, sample.label, name) != samples[number] or source.classes != classes:
            raise Silent(f"sample {number} is another one, or of other classes")
    if refused:
        raise refused


@hostile("tar shards", 3_000, prepare_shards)
def attack_tar(trial: Trial) -> None:
    files = dict(originals(trial.seeds)[0])
    tars = sorted(name for name in files if name.endswith(".tar"))
    name, other = trial.random.sample(tars, 2)
    how = trial.random.random()
    if how < 0.9:
        files[name] = mutate_bytes(files[name], trial.random)[1]
    elif how < 0.95:
        files[name], files[other] = files[other], files[name]
    else:
        del files[name]
    read_set(trial, files)


@hostile("shard index", 2_000, prepare_shards)
def attack_index(trial: Trial) -> None:
    random, files = trial.random, dict(originals(trial.seeds)[0])
    how = random.random()
    if how < 0.4:
        records = np.load(io.BytesIO(files[INDEX]))
        for _ in range(random.randint(1, 3)):
            field = random.choice(SAMPLE_RECORD.names or ())
            records[random.randrange(SAMPLES)][field] = random.choice(
                (
                    random.randrange(4),
                    random.getrandbits(16),
                    int(np.iinfo(SAMPLE_RECORD[field]).max),
                    random.getrandbits(31),
                )
            )
        if random.random() < 0.2:
            records = np.roll(records, 1)
        file = io.BytesIO()
        np.save(file, records)
        files[INDEX] = file.getvalue()
    else:
        name = INDEX if how < 0.7 else NAMES
        bad = mutate_bytes(files[name], random)[1]
        files[name] = bad
        if random.random() < 0.5:  # as one would who knows what is looked at
            files[MANIFEST] = resized(files[MANIFEST], {name: len(bad)})
    read_set(trial, files)


def resized(manifest: bytes, sizes: dict[str, int]) -> bytes:
    """Returns a manifest that claims other sizes, with its own checksum right."""
    from cruciform.data.sharding.shard_index import Manifest

    made = Manifest.from_json(manifest, "the seed")
    parts = {
        key: file._replace(bytes=sizes.get(file.name, file.bytes))
        for key, file in (("index", made.index), ("names", made.names))
    }
    return Manifest(made.classes, made.samples, made.shards, **parts).to_json().encode()


@hostile("shard manifests", 2_500, prepare_shards)
def attack_manifest(trial: Trial) -> None:
    files = dict(originals(trial.seeds)[0])
    files[MANIFEST] = mutate_json(json.loads(files[MANIFEST]), trial.random)
    read_set(trial, files)


def prepare_table(folder: Path) -> None:
    prepare_shards(folder)
    for path in (folder / "images").rglob("*.png"):
        shutil.copy(path, folder / path.name)
    (folder / "secret").write_bytes(b"nobody's business")


@hostile("image tables", 1_200, prepare_table)
def attack_table(trial: Trial) -> None:
    random: Random = trial.random
    trial.scratch.mkdir()
    rows = [[str(trial.seeds / f"{index:02d}.png"), f"class{index % 3}"] for index in range(6)]
    how = random.random()
    if how < 0.6:
        row = random.choice(rows)
        column = random.randrange(2)
        odd = (*TEXTS, str(trial.seeds / "secret"), "/dev/zero", "/proc/self/environ", ".", "\n", '"', "a,b", "~", "-0")
        row[column] = random.choice(odd)
        if random.random() < 0.2:
            del row[column]
    text = "\n".join(",".join(row) for row in [["path", "label"], *rows])
    data = text.encode("utf-8", "surrogatepass")
    if how > 0.5:
        data = mutate_bytes(data, random)[1]
    (trial.scratch / "list.csv").write_bytes(data)
    listing = list_items(trial.scratch / "list.csv")
    write_shards(listing, trial.scratch / "set", ShardOptions(size=2_000, threads=1))
    source = ShardSource(open_storage(str(trial.scratch / "set")))
    for number in range(len(source)):
        if b"nobody's business" in source.read(number):
            raise Silent("a file that is no image was copied into a shard")
    if len(source) != len(listing.items):
        raise Silent(f"{len(listing.items)} rows, {len(source)} samples")


@hostile("CIFAR batches", 600)
def attack_cifar(trial: Trial) -> None:
    random = trial.random
    trial.scratch.mkdir()
    records = np.random.default_rng(0).integers(0, 256, (4, 3073), dtype=np.uint8)
    records[:, 0] %= 10
    data = records.tobytes()
    for name in FILES["train"]:
        (trial.scratch / name).write_bytes(data)
    bad = trial.scratch / random.choice(FILES["train"])
    if random.random() < 0.1:
        bad.unlink()
        if random.random() < 0.5:
            bad.symlink_to("/dev/zero")
    else:
        bad.write_bytes(mutate_bytes(data, random)[1])
    source = open_cifar10(Opening(trial.scratch, "train"))
    for number in range(len(source)):
        image, label = source[number]
        if image.shape != (32, 32, 3) or not 0 <= label < 10:
            raise Silent(f"sample {number} is {image.shape} of class {label}")


def prepare_volumes(folder: Path) -> None:
    numbers = np.random.default_rng(0)
    arrays = {}
    for split in ("train", "test"):
        arrays[f"{split}_images"] = numbers.integers(0, 256, (4, 6, 6, 6), dtype=np.uint8)
        arrays[f"{split}_labels"] = numbers.integers(0, 2, (4, 1), dtype=np.uint8)
    np.savez_compressed(folder / "whole.npz", **arrays)
    with zipfile.ZipFile(folder / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            big = "images" in name
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                shape = (4, 1000, 100, 100) if big else array.shape
                np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
                for _ in range(40 if big else 0):
                    file.write(bytes(10**6))
                if not big:
                    file.write(array.tobytes())


@hostile("volume archives", 800, prepare_volumes)
def attack_volumes(trial: Trial) -> None:
    random = trial.random
    trial.scratch.mkdir()
    path = trial.scratch / "volumes.npz"
    if trial.number == 0:
        shutil.copy(trial.seeds / "bomb.npz", path)
    elif random.random() < 0.5:
        path.write_bytes(mutate_bytes((trial.seeds / "whole.npz").read_bytes(), random)[1])
    else:
        with np.load(trial.seeds / "whole.npz") as archive:
            arrays = {name: archive[name] for name in archive.files}
        name = random.choice(list(arrays))
        arrays[name] = _odd_array(random)
        np.savez(path, **arrays)
    source = open_volumes(Opening(path, "train"))
    for number in range(min(len(source), 8)):
        image, label = source[number]
        if image.ndim != 4 or not 0 <= label < len(source.classes):
            raise Silent(f"sample {number} is {image.shape} of class {label} of {len(source.classes)}")


def _odd_array(random: Random) -> np.ndarray:
    shape = tuple(random.randrange(5) for _ in range(random.randrange(7)))
    kind = random.choice(("f4", "f8", "i8", "u8", "c8", "?", "S3", "U3", "M8[s]", "f2", "i1"))
    array = np.zeros(shape, kind)
    if array.size and kind[0] in "fiu":
        with np.errstate(all="ignore"):
            array.flat[0] = random.choice(
                [value for value in NUMBERS if 0 <= value < 127] + [np.nan] * (kind[0] == "f")
            )
    return array
