"""Samples of shards by index: one read at a known offset each, verified by checksum before decoding."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cruciform.data.samples.source import Opening, Sample, dataset, digest_of
from cruciform.data.sets.folder import MOST_BYTES, decode
from cruciform.data.sets.folder import NAMES as SPLITS
from cruciform.data.sharding.shard_index import INDEX, MANIFEST, NAMES, File, Manifest, ShardIndex, map_index
from cruciform.data.sharding.storage import LocalStorage, Storage, open_storage
from cruciform.data.transforms.whitening import cache_folder
from cruciform.errors import AbsentError, BadSampleError, DataError
from cruciform.files import new_file, sha256

MOST_OFFSET = 2**63 - 1  # of a read


class ShardSource:
    """The samples of a set of shards.

    Args:
        storage: Its location.
        short_side: Length that the shorter side of images is resized to; None: they keep their size.
    """

    def __init__(self, storage: Storage, *, short_side: int | None = None) -> None:
        self._storage, self._short_side = storage, short_side
        self.index = open_index(storage)
        self.classes = self.index.manifest.classes
        self._names = [shard.name for shard in self.index.manifest.shards]

    @property
    def labels(self) -> NDArray[np.integer[Any]]:
        """The class index of every sample, from the index of the shards."""
        return np.asarray(self.index.records["label"])

    def __len__(self) -> int:
        return self.index.manifest.samples

    def __getitem__(self, number: int) -> Sample:
        record = self.index.records[number]
        label = int(record["label"])
        try:
            if label >= len(self.classes):
                raise DataError(f"has the label {label}, but the data has {len(self.classes)} classes")
            return Sample(decode(self.read(number), self._short_side), label)
        except DataError as error:
            raise BadSampleError(number, self.describe(number), str(error)) from error

    def read(self, number: int) -> bytes:
        """Return the bytes of a sample as they were written."""
        record = self.index.records[number]
        shard, length = int(record["shard"]), int(record["length"])
        if shard >= len(self._names) or length > MOST_BYTES or int(record["offset"]) > MOST_OFFSET:
            raise DataError(f"has an invalid record in the index: shard {shard}, {length:,} bytes")
        data = self._storage.read_range(self._names[shard], int(record["offset"]), length)
        if not self.index.is_valid(number, data):
            raise DataError("is damaged: the checksum of its bytes, index, label and name does not match")
        return data

    def digest(self, number: int) -> str:
        """Return a hash of its record: the checksum of its bytes, and its label."""
        record = self.index.records[number]
        return digest_of(record["check"].tobytes(), int(record["label"]))

    def describe(self, number: int) -> str:
        """Return the location of a sample, and its original name."""
        shard = int(self.index.records[number]["shard"])
        where = self._names[shard] if shard < len(self._names) else f"shard {shard}"
        return f"{self._storage.where(where)}, sample {number} ({self.index.name(number)})"


def open_index(storage: Storage) -> ShardIndex:
    """Map the index of a set into memory; a remote one is copied into the cache first."""
    manifest = Manifest.from_json(storage.read(MANIFEST), storage.where(MANIFEST))
    if isinstance(storage, LocalStorage):
        root = Path(storage.root)
        return map_index(manifest, root / INDEX, root / NAMES)
    return map_index(manifest, _copied(storage, manifest.index), _copied(storage, manifest.names))


def _copied(storage: Storage, file: File) -> Path:
    path = cache_folder() / "shards" / f"{file.sha256}-{file.name}"
    if not path.is_file() or path.stat().st_size != file.bytes:
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_file(path, shared=True) as part:
            part.write_bytes(storage.read(file.name))
            if sha256(part) != file.sha256:
                raise DataError(f"{storage.where(file.name)} is damaged: its checksum does not match")
    return path


def is_shards(path: str) -> bool:
    """Return whether a path is a URL, or a folder with a test set of shards."""
    return "://" in path or any((Path(path) / name / MANIFEST).is_file() for name in SPLITS["test"])


@dataset("shards", recognizes=is_shards)
def open_shards(opening: Opening) -> ShardSource:
    """Open the set of one split: ``PATH/train`` and ``PATH/val`` (or ``test``)."""
    problems = []
    for name in SPLITS[opening.split]:
        storage = open_storage(f"{opening.path}/{name}")
        try:
            storage.read(MANIFEST)
        except AbsentError as error:  # not where it is damaged: another set must not be used instead
            problems.append(str(error))
        else:
            return ShardSource(storage, short_side=opening.short_side)
    raise DataError(f"{opening.path} contains no {opening.split} set of shards: {'; '.join(problems)}")
