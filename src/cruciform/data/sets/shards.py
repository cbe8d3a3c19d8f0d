"""Samples out of shards, by number: one read at a known place for each, checked by its sum before it is decoded."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cruciform.data.samples.source import DATASETS, Opening, Sample, digest_of
from cruciform.data.sets.folder import MOST_BYTES, decode
from cruciform.data.sets.folder import NAMES as SPLITS
from cruciform.data.sharding.shard_index import INDEX, MANIFEST, NAMES, File, Manifest, ShardIndex, map_index
from cruciform.data.sharding.storage import LocalStorage, Storage, open_storage
from cruciform.data.transforms.whitening import cache_folder
from cruciform.errors import AbsentError, BadSampleError, DataError
from cruciform.files import new_file, sha256

MOST_OFFSET = 2**63 - 1  # that a system can be asked for


class ShardSource:
    """The samples of a set of shards.

    Args:
        storage: Where it lies.
        short_side: Length that the shorter side of images is brought to; None: as they are.
    """

    def __init__(self, storage: Storage, *, short_side: int | None = None) -> None:
        self._storage, self._short_side = storage, short_side
        self.index = open_index(storage)
        self.classes = self.index.manifest.classes
        self._names = [shard.name for shard in self.index.manifest.shards]

    @property
    def labels(self) -> NDArray[np.integer[Any]]:
        """The class of every sample, as the index has it."""
        return np.asarray(self.index.records["label"])

    def __len__(self) -> int:
        return self.index.manifest.samples

    def __getitem__(self, number: int) -> Sample:
        record = self.index.records[number]
        label = int(record["label"])
        try:
            if label >= len(self.classes):
                raise DataError(f"has the label {label}, but there are {len(self.classes)} classes")
            return Sample(decode(self.read(number), self._short_side), label)
        except DataError as error:
            raise BadSampleError(number, self.describe(number), str(error)) from error

    def read(self, number: int) -> bytes:
        """Returns the bytes of a sample as they were written."""
        record = self.index.records[number]
        shard, length = int(record["shard"]), int(record["length"])
        if shard >= len(self._names) or length > MOST_BYTES or int(record["offset"]) > MOST_OFFSET:
            raise DataError(f"its record in the index is impossible: shard {shard}, {length:,} bytes")
        data = self._storage.read_range(self._names[shard], int(record["offset"]), length)
        if not self.index.is_what_was_written(number, data):
            raise DataError("it is not what was written: the checksum of its bytes, number, label and name differs")
        return data

    def digest(self, number: int) -> str:
        """Returns a hash of what the index says of it: the checksum that its bytes must have, and its label."""
        record = self.index.records[number]
        return digest_of(record["check"].tobytes(), int(record["label"]))

    def describe(self, number: int) -> str:
        """Returns where a sample lies, and what it was called."""
        shard = int(self.index.records[number]["shard"])
        where = self._names[shard] if shard < len(self._names) else f"shard {shard}"
        return f"{self._storage.where(where)}, sample {number} ({self.index.name(number)})"


def open_index(storage: Storage) -> ShardIndex:
    """Maps the index of a set; one that lies elsewhere is copied into the cache first, once."""
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
                raise DataError(f"{storage.where(file.name)} is not what was written: its checksum differs")
    return path


@DATASETS.register("shards")
def open_shards(opening: Opening) -> ShardSource:
    """Opens the set of one split: ``PATH/train`` and ``PATH/val`` (or ``test``)."""
    problems = []
    for name in SPLITS[opening.split]:
        storage = open_storage(f"{opening.path}/{name}")
        try:
            storage.read(MANIFEST)
        except AbsentError as error:  # not where it is damaged: another set must not take its place unnoticed
            problems.append(str(error))
        else:
            return ShardSource(storage, short_side=opening.short_side)
    raise DataError(f"no shards to {opening.split} on below {opening.path}: {'; '.join(problems)}")
