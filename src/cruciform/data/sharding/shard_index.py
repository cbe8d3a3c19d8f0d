"""The index of a set of shards: where every sample lies, in arrays that are mapped into memory and never read whole.

::

    OUT/shard-000000.tar   what tar, webdataset and Ray Data read: 000000000.jpg, 000000000.cls, 000000001.jpg, ...
    OUT/index.npy          a record for each sample, ``SAMPLE_RECORD``
    OUT/names.bin          what each sample was called before, one name behind the other
    OUT/manifest.json      classes, and size and checksum of every file above; written last

A sample is found by its number: the index says in which shard it lies, at which byte, how long it is, and a checksum of
its bytes, number, label and name. So nothing of a tar file is ever parsed when it is read, no name in it ever becomes a
path, and an index that is damaged is found out by the samples it concerns, without being read whole.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cruciform.errors import DataError

SHARD_FORMAT = 2
BYTES_ONLY = 1  # a format of old, still read: checksums of bytes alone, and a manifest without one
MANIFEST, INDEX, NAMES = "manifest.json", "index.npy", "names.bin"
SAMPLE_RECORD = np.dtype(
    [("shard", "<u4"), ("label", "<u4"), ("offset", "<u8"), ("length", "<u4"), ("check", "<u8"), ("name_end", "<u8")]
)


def checksum(data: bytes, about: bytes = b"") -> int:
    """Returns 64 bits that tell whether a sample's bytes, and what is known about it, are what was written."""
    key = hashlib.blake2b(about, digest_size=32).digest() if about else b""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8, key=key).digest(), "little")


def about_sample(number: int, label: int, name: bytes) -> bytes:
    """Returns what a sample's checksum covers beside its bytes."""
    return b"%d %d " % (number, label) + name


class File(NamedTuple):
    """A file of the set.

    Attributes:
        name: In the set's folder.
        bytes: Its size.
        sha256: Its checksum.
    """

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a set of shards consists of.

    Attributes:
        classes: The names of the classes.
        samples: How many there are.
        shards: The shards, in the order of their numbers.
        index: The file with the records.
        names: The file with the samples' names.
        format: What the checksums of samples cover.
    """

    classes: tuple[str, ...]
    samples: int
    shards: tuple[File, ...]
    index: File
    names: File
    format: int = SHARD_FORMAT

    def to_json(self) -> str:
        """Returns it as text."""
        data = asdict(self)
        if self.format != BYTES_ONLY:
            data["checksum"] = _checksum(data)
        return json.dumps(data, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: bytes | str, where: str) -> "Manifest":
        """Reads it from text; anything that is not as it was written is refused."""
        try:
            data = json.loads(text)
            if data["format"] not in (BYTES_ONLY, SHARD_FORMAT):
                raise DataError(f"{where} has the format {data['format']!r}; this version knows {SHARD_FORMAT}")
            claimed = data.pop("checksum", None)
            if claimed != (_checksum(data) if data["format"] == SHARD_FORMAT else None):
                raise DataError(f"{where} is not what was written: its own checksum differs")
            made = cls(
                _texts(data["classes"]),
                _count(data["samples"]),
                tuple(_file(item) for item in data["shards"]),
                _file(data["index"]),
                _file(data["names"]),
                data["format"],
            )
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(f"{where} is no manifest of shards: {type(error).__name__}: {error}") from error
        return made


@dataclass(frozen=True)
class ShardIndex:
    """Where samples lie.

    Attributes:
        manifest: Of the set.
        records: One for each sample, mapped.
        names: All names, mapped.
    """

    manifest: Manifest
    records: NDArray[Any]
    names: NDArray[np.uint8]

    def name(self, number: int) -> str:
        """Returns what a sample was called before."""
        return self.name_bytes(number).decode("utf-8", "replace")

    def name_bytes(self, number: int) -> bytes:
        """Returns its name as it was written."""
        start = int(self.records[number - 1]["name_end"]) if number else 0
        return bytes(self.names[start : int(self.records[number]["name_end"])])

    def is_what_was_written(self, number: int, data: bytes) -> bool:
        """Whether a sample's bytes, and its record here, are those that were written."""
        record = self.records[number]
        old = self.manifest.format == BYTES_ONLY
        about = b"" if old else about_sample(number, int(record["label"]), self.name_bytes(number))
        return len(data) == int(record["length"]) and checksum(data, about) == int(record["check"])


def map_index(manifest: Manifest, index: Path, names: Path) -> ShardIndex:
    """Maps the arrays of an index, after a look at their sizes."""
    for file, path in ((manifest.index, index), (manifest.names, names)):
        if not path.is_file() or path.stat().st_size != file.bytes:
            raise DataError(f"{path} is missing or has another size than in the manifest; see 'cruciform shard verify'")
    try:
        records = np.load(index, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # its header is a Python literal, and whatever can be wrong with one is raised
        raise DataError(f"{index} can't be read: {error}") from error
    if not isinstance(records, np.ndarray) or records.dtype != SAMPLE_RECORD or records.shape != (manifest.samples,):
        raise DataError(f"{index} does not hold a record for each of {manifest.samples:,} samples")
    text = np.memmap(names, np.uint8, "r") if manifest.names.bytes else np.zeros(0, np.uint8)
    return ShardIndex(manifest, records, text)


def _file(data: Any) -> File:
    fields: dict[str, Any] = data if isinstance(data, dict) else dict(zip(File._fields, data, strict=True))
    name, size, sha256 = fields["name"], fields["bytes"], fields["sha256"]
    plain = isinstance(name, str) and name and not name.startswith(".") and not set(name) & set("/\\\0:")
    if not plain or len(str(sha256)) != hashlib.sha256().digest_size * 2:
        raise ValueError(f"{name!r} is no file of a set of shards")
    return File(name, _count(size), str(sha256))


def _checksum(data: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a number of things")
    return value


def _texts(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError("classes must be a list of names")
    return tuple(values)
