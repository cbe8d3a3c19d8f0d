"""The index of a set of shards: the location of every sample, in memory-mapped arrays.

::

    OUT/shard-000000.tar   what tar, webdataset and Ray Data read: 000000000.jpg, 000000000.cls, 000000001.jpg, ...
    OUT/index.npy          a record for each sample, ``SAMPLE_RECORD``
    OUT/names.bin          the original names of the samples, concatenated
    OUT/manifest.json      classes, and size and checksum of every file above; written last

The record of a sample has its shard, offset and length, and a checksum of its bytes, number, label and name. So tar
files are never parsed, names in them never become paths, and damage of the index is detected by the samples that it
affects, without reading all of it.
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
BYTES_ONLY = 1  # an older format, still read: checksums of bytes only, and a manifest without a checksum
MANIFEST, INDEX, NAMES = "manifest.json", "index.npy", "names.bin"
SAMPLE_RECORD = np.dtype(
    [("shard", "<u4"), ("label", "<u4"), ("offset", "<u8"), ("length", "<u4"), ("check", "<u8"), ("name_end", "<u8")]
)


def checksum(data: bytes, about: bytes = b"") -> int:
    """Return a 64-bit checksum of a sample's bytes and metadata."""
    key = hashlib.blake2b(about, digest_size=32).digest() if about else b""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8, key=key).digest(), "little")


def about_sample(number: int, label: int, name: bytes) -> bytes:
    """Return the metadata that a sample's checksum covers."""
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
    """The files of a set of shards.

    Attributes:
        classes: The class names.
        samples: Number of samples.
        shards: The shards, in order.
        index: The file with the records.
        names: The file with the original names.
        format: The format version.
    """

    classes: tuple[str, ...]
    samples: int
    shards: tuple[File, ...]
    index: File
    names: File
    format: int = SHARD_FORMAT

    def to_json(self) -> str:
        """Return it as JSON."""
        data = asdict(self)
        if self.format != BYTES_ONLY:
            data["checksum"] = _checksum(data)
        return json.dumps(data, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: bytes | str, where: str) -> "Manifest":
        """Read it from JSON; raise where it is damaged."""
        try:
            data = json.loads(text)
            if data["format"] not in (BYTES_ONLY, SHARD_FORMAT):
                raise DataError(f"{where} has format {data['format']!r}; this version reads format {SHARD_FORMAT}")
            claimed = data.pop("checksum", None)
            if claimed != (_checksum(data) if data["format"] == SHARD_FORMAT else None):
                raise DataError(f"{where} is damaged: its checksum does not match")
            made = cls(
                _texts(data["classes"]),
                _count(data["samples"]),
                tuple(_file(item) for item in data["shards"]),
                _file(data["index"]),
                _file(data["names"]),
                data["format"],
            )
        except DataError:
            raise
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(f"{where} is not a manifest of shards: {type(error).__name__}: {error}") from error
        return made


@dataclass(frozen=True)
class ShardIndex:
    """The locations of samples.

    Attributes:
        manifest: Of the set.
        records: One for each sample, memory-mapped.
        names: All names, memory-mapped.
    """

    manifest: Manifest
    records: NDArray[Any]
    names: NDArray[np.uint8]

    def name(self, number: int) -> str:
        """Return the original name of a sample."""
        return self.name_bytes(number).decode("utf-8", "replace")

    def name_bytes(self, number: int) -> bytes:
        """Return its original name as bytes."""
        start = int(self.records[number - 1]["name_end"]) if number else 0
        return bytes(self.names[start : int(self.records[number]["name_end"])])

    def is_valid(self, number: int, data: bytes) -> bool:
        """Return whether a sample's bytes and record match its checksum."""
        record = self.records[number]
        old = self.manifest.format == BYTES_ONLY
        about = b"" if old else about_sample(number, int(record["label"]), self.name_bytes(number))
        return len(data) == int(record["length"]) and checksum(data, about) == int(record["check"])


def map_index(manifest: Manifest, index: Path, names: Path) -> ShardIndex:
    """Map the arrays of an index into memory; raise where their sizes are wrong."""
    for file, path in ((manifest.index, index), (manifest.names, names)):
        if not path.is_file() or path.stat().st_size != file.bytes:
            raise DataError(f"{path} is missing or does not have the size in the manifest; verify the shards")
    try:
        records = np.load(index, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # its header is a Python literal, which can raise anything
        raise DataError(f"{index} can't be read: {error}") from error
    if not isinstance(records, np.ndarray) or records.dtype != SAMPLE_RECORD or records.shape != (manifest.samples,):
        raise DataError(f"{index} does not have one record for each of {manifest.samples:,} samples")
    text = np.memmap(names, np.uint8, "r") if manifest.names.bytes else np.zeros(0, np.uint8)
    return ShardIndex(manifest, records, text)


def _file(data: Any) -> File:
    fields: dict[str, Any] = data if isinstance(data, dict) else dict(zip(File._fields, data, strict=True))
    name, size, sha256 = fields["name"], fields["bytes"], fields["sha256"]
    plain = isinstance(name, str) and name and not name.startswith(".") and not set(name) & set("/\\\0:")
    if not plain or len(str(sha256)) != hashlib.sha256().digest_size * 2:
        raise ValueError(f"{name!r} is not a file of a set of shards")
    return File(name, _count(size), str(sha256))


def _checksum(data: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value


def _texts(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError("classes must be a list of names")
    return tuple(values)
