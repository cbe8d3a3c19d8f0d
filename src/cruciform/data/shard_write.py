"""Write shards: tar files of samples, an index, a manifest.

The same input gives the same bytes, whatever the interruptions and the number of threads. Samples are assigned to
shards first, by the sizes of their files. Then every shard is written under a hidden name until it is complete; its
part of the index is stored in ``.parts`` until all are written.
"""

import csv
import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cruciform.data.samples.pillow import Pillow
from cruciform.data.sets.folder import SUFFIXES, check_size, decode, images_by_class
from cruciform.data.sharding.shard_index import (
    INDEX,
    MANIFEST,
    NAMES,
    SAMPLE_RECORD,
    SHARD_FORMAT,
    File,
    Manifest,
    about_sample,
    checksum,
)
from cruciform.data.sharding.shard_options import ShardOptions
from cruciform.errors import DataError, OptionError
from cruciform.files import check_regular, open_regular, read_bytes, read_text, sha256, sync, write_text

PARTS = ".parts"
BLOCK = tarfile.BLOCKSIZE
QUALITY = 95


class Item(NamedTuple):
    """A file that becomes a sample.

    Attributes:
        path: Its location.
        name: Its path relative to the folder, or as in the CSV file.
        label: Its class index.
        bytes: Its size.
    """

    path: Path
    name: str
    label: int
    bytes: int

    @property
    def name_bytes(self) -> Any:  # bytes; the field hides the type
        """Its name as the file system stores it, which need not be valid text."""
        return self.name.encode("utf-8", "surrogateescape")


@dataclass(frozen=True)
class Listing:
    """The samples to write.

    Attributes:
        items: In the order of their names.
        classes: The class names.
    """

    items: tuple[Item, ...]
    classes: tuple[str, ...]


def list_items(images: Path) -> Listing:
    """List the images of a folder with one subfolder for each class, or of a CSV file with columns path and label."""
    if images.is_dir():
        found = images_by_class(images)
        classes = list(found)
        rows = [(path, f"{label}/{path.name}", label) for label, paths in found.items() for path in paths]
    elif images.suffix == ".csv" and images.is_file():
        rows = list(_rows(images))
        classes = sorted({label for _, _, label in rows})
    else:
        raise DataError(f"{images} is neither a folder of classes nor a .csv file with the columns path and label")
    if not rows:
        raise DataError(f"{images} contains no images; expected {images}/CLASS/*.jpg (or .png, .webp)")
    for label in classes:
        if not label.isprintable():  # a name that is not valid UTF-8 has surrogates
            raise DataError(f"{images} has a class {label!r}, whose name is not printable; rename it")
    number = {label: index for index, label in enumerate(classes)}
    items = tuple(Item(path, name, number[label], _size(path)) for path, name, label in rows)
    return Listing(items, tuple(classes))


def _rows(table: Path) -> Iterator[tuple[Path, str, str]]:
    try:
        with io.TextIOWrapper(open_regular(table), "utf-8-sig", newline="") as file:  # spreadsheets write a BOM
            reader = csv.DictReader(file)
            if not {"path", "label"} <= set(reader.fieldnames or ()):
                raise DataError(f"{table} needs the columns path and label, not {', '.join(reader.fieldnames or ())}")
            for row in reader:
                name, label = row["path"], row["label"]
                # Files are copied without decoding, so they must at least be named as images.
                if not (name and label) or Path(name).suffix.lower() not in SUFFIXES:
                    names = ", ".join(sorted(SUFFIXES))
                    raise DataError(f"{table}, line {reader.line_num}: needs a path ending in {names}, and a label")
                yield table.parent / name, name, label
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{table} can't be read as a table: {error}") from error


def _size(path: Path) -> int:
    try:
        status = path.stat()
    except (OSError, ValueError) as error:  # a name with a zero byte in it is a ValueError
        raise DataError(f"{path} can't be read: {error}") from error
    if not S_ISREG(status.st_mode):
        raise DataError(f"{path} is not a file")
    try:
        check_size(status.st_size)
    except DataError as error:
        raise DataError(f"{path} {error}") from None
    return status.st_size


def write_shards(
    listing: Listing,
    out: Path,
    options: ShardOptions,
    *,
    on_progress: Callable[[int, int], None] = lambda done, of: None,
) -> Manifest:
    """Write a set of shards, or resume an interrupted call.

    Args:
        listing: The samples.
        out: The folder to write into.
        options: How they are written.
        on_progress: Called with the number of samples written, and of all.
    """
    if (out / MANIFEST).exists():
        raise DataError(f"{out} already contains a complete set of shards; choose another folder, or delete it")
    items = _ordered(listing.items, options.seed)
    pieces = list(_pieces(items, options.size))
    parts = out / PARTS
    _begin(parts, items, options)
    shards: list[File | None] = [None] * len(pieces)
    done = 0
    with ThreadPoolExecutor(max(1, options.threads)) as pool:
        tasks = {
            pool.submit(_write_shard, out, number, piece, items, options): number for number, piece in enumerate(pieces)
        }
        try:
            for task in as_completed(tasks):
                shards[tasks[task]] = task.result()
                done += len(pieces[tasks[task]])
                on_progress(done, len(items))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return _finish(out, [shard for shard in shards if shard], listing.classes, items, pieces)


def _ordered(items: Sequence[Item], seed: int | None) -> list[Item]:
    if seed is None:
        return list(items)
    order = np.random.Generator(np.random.Philox(np.random.SeedSequence(seed))).permutation(len(items))
    return [items[index] for index in order]


def _pieces(items: Sequence[Item], size: int) -> Iterator[range]:
    if size < 1:
        raise OptionError(f"the shard size must be 1 byte or more, as 256 MB; not {size}")
    first = filled = 0
    for index, item in enumerate(items):
        if index > first and filled + item.bytes > size:
            yield range(first, index)
            first, filled = index, 0
        filled += item.bytes
    yield range(first, len(items))


def _begin(parts: Path, items: Sequence[Item], options: ShardOptions) -> None:
    """Create the folder of parts, or check that it belongs to the same images and options."""
    digest = hashlib.sha256(repr((SHARD_FORMAT, options.size, options.short_side)).encode())
    for item in items:
        digest.update(item.name_bytes + f"\0{item.label}\0{item.bytes}\n".encode())
    plan = parts / "plan"
    if plan.is_file() and read_text(plan) != digest.hexdigest():
        raise DataError(f"{parts.parent} was started with other images or options; finish it with those, or delete it")
    parts.mkdir(parents=True, exist_ok=True)
    write_text(plan, digest.hexdigest())


def _write_shard(out: Path, number: int, piece: range, items: Sequence[Item], options: ShardOptions) -> File:
    name = f"shard-{number:06d}.tar"
    beside = out / PARTS / f"{number:06d}.json"
    if beside.is_file():
        known = json.loads(read_text(beside))
        file = File(**known["file"])
        # A power cut may have truncated the records.
        kept = _count(beside.with_suffix(".npy")) == len(piece) and (out / name).is_file()
        if kept and (out / name).stat().st_size == file.bytes and sha256(out / name) == file.sha256:
            return file
    hidden = out / PARTS / name
    records = np.zeros(len(piece), SAMPLE_RECORD)
    with hidden.open("wb") as tar:
        for row, index in enumerate(piece):
            item = items[index]
            data, suffix = _bytes_of(item, options.short_side)
            key = f"{index:09d}"
            check = checksum(data, about_sample(index, item.label, item.name_bytes))
            records[row] = (number, item.label, tar.tell() + BLOCK, len(data), check, 0)
            _add(tar, f"{key}{suffix}", data)
            _add(tar, f"{key}.cls", str(item.label).encode())
        tar.write(bytes(2 * BLOCK))
    np.save(beside.with_suffix(".npy"), records)
    sync(beside.with_suffix(".npy"))
    file = File(name, hidden.stat().st_size, sha256(hidden))
    sync(hidden)
    hidden.replace(out / name)
    sync(out)
    write_text(beside, json.dumps({"file": file._asdict()}))
    return file


def _count(path: Path) -> int | None:
    try:
        return len(np.load(check_regular(path), allow_pickle=False))
    except (OSError, ValueError, EOFError, TypeError):
        return None


def _bytes_of(item: Item, short_side: int | None) -> tuple[bytes, str]:
    try:
        data = read_bytes(item.path)
    except OSError as error:
        raise DataError(f"{item.path} can't be read: {error}") from error
    if short_side is None:
        if len(data) != item.bytes:
            raise DataError(f"{item.path} changed while it was being written: {len(data):,} bytes, not {item.bytes:,}")
        return data, item.path.suffix.lower()
    try:
        image = decode(data, short_side)
    except DataError as error:
        raise DataError(f"{item.path}: {error}") from error.__cause__
    encoded = io.BytesIO()
    Pillow.fromarray(image).save(encoded, "JPEG", quality=QUALITY)
    return encoded.getvalue(), ".jpg"


def _add(tar: Any, name: str, data: bytes) -> None:
    """Add a member without owner and time, so that the bytes don't depend on the machine."""
    header = tarfile.TarInfo(name)
    header.size, header.mode = len(data), 0o644
    tar.write(header.tobuf(tarfile.USTAR_FORMAT))
    tar.write(data)
    tar.write(bytes(-len(data) % BLOCK))


def _finish(
    out: Path, shards: Sequence[File], classes: tuple[str, ...], items: Sequence[Item], pieces: Sequence[range]
) -> Manifest:
    parts = out / PARTS
    records: NDArray[Any] = np.concatenate(
        [np.load(check_regular(parts / f"{number:06d}.npy")) for number in range(len(pieces))]
    )
    names = [item.name_bytes for item in items]
    records["name_end"] = np.cumsum([len(name) for name in names])
    np.save(parts / INDEX, records)
    (parts / NAMES).write_bytes(b"".join(names))
    files: dict[str, File] = {}
    for name in (INDEX, NAMES):
        sync(parts / name)
        files[name] = File(name, (parts / name).stat().st_size, sha256(parts / name))
        (parts / name).replace(out / name)
    manifest = Manifest(classes, len(items), tuple(shards), files[INDEX], files[NAMES])
    write_text(out / MANIFEST, manifest.to_json())
    shutil.rmtree(parts)
    return manifest
