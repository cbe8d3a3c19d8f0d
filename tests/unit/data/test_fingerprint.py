"""Fingerprints of data: they tell any other contents, cost next to nothing, and do not depend on where data is."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

from cruciform.data.fingerprint import SAMPLES, compare_fingerprints, take_fingerprint
from cruciform.data.open_dataset import open_dataset
from cruciform.data.samples.source import ArraySource, Opening, Part, Source
from cruciform.data.sets.folder import FolderSource
from cruciform.data.shard_write import list_items, write_shards
from cruciform.data.sharding.shard_options import ShardOptions
from cruciform.errors import DataError

COUNT = 12


def arrays(count: int = COUNT, seed: int = 0, dtype: Any = np.uint8) -> ArraySource:
    numbers = np.random.default_rng(seed)
    images = numbers.integers(0, 256, (count, 4, 4, 3)).astype(dtype)
    return ArraySource(images, np.arange(count) % 3, ("a", "b", "c"))


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A folder of images and the same as shards, both opened as ``train``."""
    source = arrays()
    for number in range(COUNT):
        path = tmp_path / "folder" / "train" / f"class{number % 3}" / f"{number:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Pillow.fromarray(source.images[number]).save(path)
    write_shards(list_items(tmp_path / "folder" / "train"), tmp_path / "shards" / "train", ShardOptions(threads=1))
    return tmp_path


def opened(root: Path, kind: str) -> Source:
    return open_dataset(kind, Opening(root / kind, "train"))


def compared(before: Source, now: Source) -> list[str]:
    return compare_fingerprints(take_fingerprint(before), take_fingerprint(now), now)


@pytest.mark.parametrize("kind", ["folder", "shards"])
def test_the_same_data_elsewhere_is_the_same(pictures: Path, tmp_path: Path, kind: str) -> None:
    shutil.copytree(pictures / kind, tmp_path / "moved" / kind)
    before, now = opened(pictures, kind), opened(tmp_path / "moved", kind)
    assert compared(before, now) == []
    assert None not in take_fingerprint(before)["digests"].values()


def test_an_image_of_other_contents_is_found_in_a_folder_and_named(pictures: Path) -> None:
    source = opened(pictures, "folder")
    before = take_fingerprint(source)
    path = pictures / "folder" / "train" / "class1" / "04.png"
    Pillow.fromarray(255 - arrays().images[4]).save(path)
    found = compare_fingerprints(before, take_fingerprint(source), source)
    assert found == [f"1 of 12 compared samples differ, the first: {path}"]


def test_a_file_that_is_no_image_is_not_compared_so_that_it_can_be_mended(pictures: Path) -> None:
    source = opened(pictures, "folder")
    path = pictures / "folder" / "train" / "class1" / "04.png"
    whole = path.read_bytes()
    path.write_bytes(whole[:40])
    damaged = take_fingerprint(source)
    assert list(damaged["digests"].values()).count(None) == 1
    path.write_bytes(whole)
    assert compare_fingerprints(damaged, take_fingerprint(source), source) == []
    assert compare_fingerprints(take_fingerprint(source), damaged, source) == []


def test_shards_of_other_images_are_found_without_reading_a_sample(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cruciform.data.sharding.storage import LocalStorage

    path = pictures / "folder" / "train" / "class1" / "04.png"
    Pillow.fromarray(255 - arrays().images[4]).save(path)
    items = list_items(pictures / "folder" / "train")
    write_shards(items, tmp_path / "other" / "shards" / "train", ShardOptions(threads=1))

    def refuse(*given: object) -> bytes:
        raise DataError("a sample was read")

    monkeypatch.setattr(LocalStorage, "read_range", refuse)
    found = compared(opened(pictures, "shards"), opened(tmp_path / "other", "shards"))
    assert len(found) == 1
    assert "1 of 12 compared samples differ" in found[0]


def test_labels_and_class_names_are_told_also_where_no_sample_is_compared() -> None:
    source = arrays(40 * SAMPLES)
    labels = source.labels.copy()
    labels[1] = 2  # none of those that are compared
    assert compared(source, ArraySource(source.images, labels, source.classes)) == ["its labels differ"]
    assert compared(source, ArraySource(source.images, source.labels, ("a", "c", "b"))) == ["its class names differ"]


def test_images_of_another_type_or_shape_are_others() -> None:
    source = arrays()
    assert compared(source, ArraySource(source.images.view(np.int8), source.labels, source.classes))
    assert compared(source, ArraySource(source.images.reshape(COUNT, 2, 8, 3), source.labels, source.classes))


def test_a_part_is_told_by_its_own_samples() -> None:
    whole = arrays(20)
    assert compared(Part(whole, range(10)), Part(whole, range(10, 20)))
    assert compared(Part(whole, range(10)), Part(arrays(20), range(10))) == []


def test_another_number_of_samples_is_told_as_such() -> None:
    assert compared(arrays(12), arrays(13)) == ["it has 13 samples, and had 12"]


def test_few_samples_of_many_are_read(pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = arrays(10_000)
    read: list[int] = []
    real = ArraySource.__getitem__
    monkeypatch.setattr(ArraySource, "__getitem__", lambda self, index: read.append(index) or real(self, index))
    take_fingerprint(source)
    assert len(read) == SAMPLES
    assert read[0] < 200
    assert read[-1] > 9_800
    assert isinstance(opened(pictures, "folder"), FolderSource)


def test_of_a_very_large_source_the_labels_of_the_samples_that_are_compared_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from cruciform.data import fingerprint

    monkeypatch.setattr(fingerprint, "MOST_LABELS", COUNT - 1)
    source = arrays()
    labels = source.labels.copy()
    labels[4] = 2
    changed = ArraySource(source.images, labels, source.classes)
    assert compared(source, changed) == ["1 of 12 compared samples differ, the first: sample 4"]
