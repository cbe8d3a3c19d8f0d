"""Coverage-guided fuzzing with atheris: five places where bytes of others are read. Not a dependency; a tool.

    pip install atheris
    python tests/hostile/fuzz/harness.py images -atheris_runs=10000        as long as you like; a crash leaves its input

Each target takes any bytes. The library's own errors mean that they were refused; whatever else is raised is a find.
"""

import hashlib
import io
import json
import struct
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import atheris
import numpy as np
from PIL import Image as Pillow

with atheris.instrument_imports(include=["cruciform.data", "cruciform.files", "cruciform.training"]):
    from cruciform.data.sets.folder import decode
    from cruciform.data.sets.shards import ShardSource
    from cruciform.data.sharding.shard_index import INDEX, MANIFEST, NAMES, SAMPLE_RECORD, File, Manifest
    from cruciform.data.sharding.storage import open_storage
    from cruciform.errors import CruciformError
    from cruciform.files import _checksum
    from cruciform.training.recipe.cookbook import load_recipe
    from cruciform.training.run.checkpoint import TENSORS, VALUES, load

SCRATCH = Path(tempfile.mkdtemp(prefix="fuzz-"))
SUM = "0" * 64


def images(data: bytes) -> None:
    """The bytes of an image."""
    decode(data, 16 if data[-1:] > b"\x80" else None)


def shards(data: bytes) -> None:
    """An index and a shard: the first bytes are records, the rest is the tar file."""
    count = min(4, len(data) // SAMPLE_RECORD.itemsize)
    index = io.BytesIO()
    np.save(index, np.frombuffer(data[: count * SAMPLE_RECORD.itemsize], SAMPLE_RECORD))
    files = {INDEX: index.getvalue(), NAMES: b"names", "a.tar": data[count * SAMPLE_RECORD.itemsize :]}
    sizes = {name: File(name, len(content), SUM) for name, content in files.items()}
    manifest = Manifest(("a", "b"), count, (sizes["a.tar"],), sizes[INDEX], sizes[NAMES])
    for name, content in {**files, MANIFEST: manifest.to_json().encode()}.items():
        (SCRATCH / name).write_bytes(content)
    source = ShardSource(open_storage(str(SCRATCH)))
    for number in range(len(source)):
        try:
            source[number]
        except CruciformError:
            continue


def safetensors(data: bytes) -> None:
    """The file of tensors of a checkpoint, with all checksums right."""
    _checkpoint({TENSORS: data, VALUES: b"{}"})


def checkpoint(data: bytes) -> None:
    """The manifest of a checkpoint."""
    _checkpoint({TENSORS: struct.pack("<Q", 2) + b"{}", VALUES: b"{}"}, data)


def recipe(data: bytes) -> None:
    """A recipe in TOML, and a change to one."""
    path = SCRATCH / "recipe.toml"
    path.write_bytes(data)
    try:
        load_recipe(path)
    except CruciformError:
        load_recipe("nin_cifar10", [data.decode("utf-8", "replace")])


def _checkpoint(files: dict[str, bytes], manifest: bytes | None = None) -> None:
    folder = SCRATCH / "step-00000001"
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    whole = {"format": 1, "step": 1, "files": sums}
    good = json.dumps({**whole, "checksum": _checksum(whole)}).encode()
    (folder / MANIFEST).write_bytes(good if manifest is None else manifest)
    load(folder)


def seeds() -> dict[str, list[bytes]]:
    """Returns what mutation starts from."""
    pictures = []
    for form in ("JPEG", "PNG", "WEBP"):
        file = io.BytesIO()
        Pillow.new("RGB", (9, 7), (200, 30, 90)).save(file, form)
        pictures.append(file.getvalue())
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    return {
        "images": pictures,
        "shards": [bytes(SAMPLE_RECORD.itemsize * 2) + pictures[1]],
        "safetensors": [struct.pack("<Q", len(header)) + header + bytes(8)],
        "checkpoint": [json.dumps({"format": 1, "step": 1, "files": {TENSORS: SUM}, "checksum": SUM}).encode()],
        "recipe": [b"epochs = 1\nbatch_size = 2\n[model]\nname = 'nin'\n", b"optimizer.lr=0.5"],
    }


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target for target in (images, shards, safetensors, checkpoint, recipe)
}


def main() -> None:
    name = sys.argv.pop(1) if len(sys.argv) > 1 else ""
    if name not in TARGETS:
        sys.exit(f"which one? {', '.join(TARGETS)}")
    target = TARGETS[name]
    corpus = SCRATCH / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(seeds()[name]):
        (corpus / str(number)).write_bytes(seed)

    def one_input(data: bytes) -> None:
        try:
            target(data)
        except CruciformError:
            return

    atheris.Setup([*sys.argv, str(corpus)], one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
