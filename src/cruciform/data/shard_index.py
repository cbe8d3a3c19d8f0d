"""The index of a set of shards: where every sample lies, in arrays that are mapped into memory and never read whole.

::

    OUT/shard-000000.tar   what tar, webdataset and Ray Data read: 000000000.jpg, 000000000.cls, 000000001.jpg, ...
    OUT/index.npy          a record for each sample, ``RECORD``
    OUT/names.bin          what each sample was called before, one name behind the other
    OUT/manifest.json      classes, and size and checksum of every file above; written last

A sample is found by its number: the index says in which shard it lies, at which byte, how long it is, and a checksum of
its bytes. So nothing of a tar file is ever parsed when it is read, and no name in it ever becomes a path.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cruciform.errors import DataError

FORMAT = 1
MANIFEST, INDEX, NAMES = "manifest.json", "index.npy", "names.bin"
RECORD = np.dtype(
    [("shard", "<u4"), ("label", "<u4"), ("offset", "<u8"), ("length", "<u4"), ("check", "<u8"), ("name_end", "<u8")]
)


def checksum(data: bytes) -> int:
    """Returns 64 bits that tell whether a sample's bytes are what was written."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


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
    """

    classes: tuple[str, ...]
    samples: int
    shards: tuple[File, ...]
    index: File
    names: File

    def to_json(self) -> str:
        """Returns it as text."""
        data = {"format": FORMAT, **asdict(self)}
        return json.dumps(data, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: bytes | str, where: str) -> "Manifest":
        """Reads it from text; anything that is not as it was written is refused."""
        try:
            data = json.loads(text)
            if data["format"] != FORMAT:
                raise DataError(f"{where} has the format {data['format']!r}; this version knows {FORMAT}")
            made = cls(
                _texts(data["classes"]),
                _count(data["samples"]),
                tuple(_file(item) for item in data["shards"]),
                _file(data["index"]),
                _file(data["names"]),
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
        start = int(self.records[number - 1]["name_end"]) if number else 0
        return bytes(self.names[start : int(self.records[number]["name_end"])]).decode("utf-8", "replace")


def map_index(manifest: Manifest, index: Path, names: Path) -> ShardIndex:
    """Maps the arrays of an index, after a look at their sizes."""
    for file, path in ((manifest.index, index), (manifest.names, names)):
        if not path.is_file() or path.stat().st_size != file.bytes:
            raise DataError(
                f"{path} is missing or has another size than the manifest says; see 'cruciform shard verify'"
            )
    try:
        records = np.load(index, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError) as error:
        raise DataError(f"{index} can't be read: {error}") from error
    if records.dtype != RECORD or records.shape != (manifest.samples,):
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


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a number of things")
    return value


def _texts(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError("classes must be a list of names")
    return tuple(values)
