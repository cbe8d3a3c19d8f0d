"""Shards: the same bytes always, read by others too, and nothing that is damaged goes unnoticed."""

import io
import os
import subprocess
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow
from typer.testing import CliRunner

from cruciform.cli.main import app
from cruciform.cli.training.shard import read_bytes
from cruciform.data.loader import Loader
from cruciform.data.open_dataset import open_dataset
from cruciform.data.order import Order
from cruciform.data.samples.source import Opening
from cruciform.data.sets.folder import MOST_BYTES, FolderSource
from cruciform.data.sets.shards import ShardSource, open_index
from cruciform.data.shard_verify import verify_shards
from cruciform.data.shard_write import PARTS, Listing, list_items, write_shards
from cruciform.data.sharding.shard_index import Manifest
from cruciform.data.sharding.shard_options import ShardOptions
from cruciform.data.sharding.storage import RemoteStorage, open_storage
from cruciform.errors import BadSampleError, DataError, OptionError

SAMPLES, CLASSES = 30, 3


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    numbers = np.random.default_rng(0)
    for index in range(SAMPLES):
        path = folder / f"class{index % CLASSES}" / f"{index:02d}.{'png' if index % 4 else 'jpg'}"
        path.parent.mkdir(exist_ok=True)
        pixels = numbers.integers(0, 256, (20 + index, 24, 3), dtype=np.uint8)
        Pillow.fromarray(pixels).save(path, quality=95)
    return folder


def test_a_damaged_set_is_not_replaced_by_another(images: Path, tmp_path: Path) -> None:
    for name in ("val", "test"):
        write_shards(list_items(images), tmp_path / name, ShardOptions())
    manifest = tmp_path / "val" / "manifest.json"
    manifest.write_text(manifest.read_text("utf-8").replace("class0", "class9"))
    with pytest.raises(DataError, match="val/manifest.json"):
        open_dataset("shards", Opening(tmp_path, "test"))
    manifest.unlink()
    assert len(open_dataset("shards", Opening(tmp_path, "test"))) == SAMPLES


def test_what_could_not_be_read_again_is_refused_before_it_is_written(images: Path, tmp_path: Path) -> None:
    odd = tmp_path / "odd" / os.fsdecode(b"caf\xe9")
    odd.mkdir(parents=True)
    (odd / "1.png").write_bytes(b"")
    with pytest.raises(DataError, match="whose name is not printable"):
        list_items(odd.parent)
    large = tmp_path / "large" / "a" / "1.png"
    large.parent.mkdir(parents=True)
    with large.open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(DataError, match=r"1.png has 67,108,865 bytes; the limit is 67,108,864"):
        list_items(tmp_path / "large")


def test_a_table_of_a_spreadsheet_begins_with_a_mark(images: Path) -> None:
    table = images / "table.csv"
    table.write_text("path,label\nclass0/00.jpg,cat\n", "utf-8-sig")
    assert list_items(table).classes == ("cat",)
    table.unlink()


def test_several_copy_an_index_at_once(shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRUCIFORM_CACHE", str(tmp_path / "cache"))
    storage = RemoteStorage("memory://together")
    for path in shards.iterdir():
        storage._system.pipe_file(f"{storage._folder}/{path.name}", path.read_bytes())
    with ThreadPoolExecutor(8) as pool:
        assert {len(index.records) for index in pool.map(open_index, [storage] * 32)} == {SAMPLES}
    assert not list((tmp_path / "cache").rglob(".part-*"))


@pytest.fixture
def shards(images: Path, tmp_path: Path) -> Path:
    write_shards(list_items(images), tmp_path / "train", ShardOptions(size=10_000))
    return tmp_path / "train"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_every_sample_comes_back_with_its_label_and_name(images: Path, shards: Path) -> None:
    source = ShardSource(open_storage(str(shards)))
    assert len(source) == SAMPLES
    assert source.classes == ("class0", "class1", "class2")
    seen = set()
    for number in range(SAMPLES):
        name = source.index.name(number)
        seen.add(name)
        assert source.read(number) == (images / name).read_bytes()
        assert source[number].label == int(name[5])
        with Pillow.open(images / name) as image:
            assert np.array_equal(source[number].image, np.asarray(image.convert("RGB")))
    assert len(seen) == SAMPLES
    assert len(source.index.manifest.shards) > 3


def test_the_same_images_give_the_same_bytes_whoever_writes_them(images: Path, shards: Path, tmp_path: Path) -> None:
    write_shards(list_items(images), tmp_path / "again", ShardOptions(size=10_000, threads=1))
    assert contents(tmp_path / "again") == contents(shards)
    write_shards(list_items(images), tmp_path / "other", ShardOptions(size=10_000, seed=1))
    assert contents(tmp_path / "other") != contents(shards)


def test_writing_goes_on_where_it_was_interrupted(images: Path, shards: Path, tmp_path: Path) -> None:
    class Stop(Exception):  # noqa: N818
        pass

    def stop(done: int, of: int) -> None:
        if done > 10:
            raise Stop

    out = tmp_path / "broken"
    with pytest.raises(Stop):
        write_shards(list_items(images), out, ShardOptions(size=10_000, threads=1), on_progress=stop)
    written = {path.name: path.stat().st_mtime_ns for path in out.glob("*.tar")}
    assert written
    assert not (out / "manifest.json").exists()
    first = min(written)
    (out / first).write_bytes(b"torn")  # as if the disk had lost it
    write_shards(list_items(images), out, ShardOptions(size=10_000, threads=1))
    assert contents(out) == contents(shards)
    kept = {name for name, time in written.items() if (out / name).stat().st_mtime_ns == time}
    assert kept == set(written) - {first}


def test_a_plan_that_has_changed_is_refused(images: Path, tmp_path: Path) -> None:
    listing, out = list_items(images), tmp_path / "out"
    (out / PARTS).mkdir(parents=True)
    (out / PARTS / "plan").write_text("of something else")
    with pytest.raises(DataError, match="was started with other images or options"):
        write_shards(listing, out, ShardOptions())
    write_shards(Listing(listing.items[:2], listing.classes), tmp_path / "done", ShardOptions())
    with pytest.raises(DataError, match="already contains a complete set of shards"):
        write_shards(listing, tmp_path / "done", ShardOptions())


def test_images_can_be_made_smaller_first(images: Path, tmp_path: Path) -> None:
    write_shards(list_items(images), tmp_path, ShardOptions(short_side=16))
    source = ShardSource(open_storage(str(tmp_path)))
    assert all(min(source[number].image.shape[:2]) == 16 for number in range(SAMPLES))


def test_tar_reads_them(shards: Path) -> None:
    for path in sorted(shards.glob("*.tar")):
        listed = subprocess.run(["tar", "tf", path], capture_output=True, text=True, check=True).stdout.split()  # noqa: S607
        with tarfile.open(path) as tar:
            assert tar.getnames() == listed
            keys = [name.partition(".")[0] for name in listed]
            assert keys[::2] == keys[1::2]
            label = tar.extractfile(listed[1])
            assert label is not None
            assert label.read() in (b"0", b"1", b"2")


def test_a_table_of_paths_and_labels_will_do(images: Path, tmp_path: Path) -> None:
    table = images / "list.csv"
    table.write_text("path,label\nclass0/00.jpg,cat\nclass1/01.png,dog\n")
    write_shards(list_items(table), tmp_path, ShardOptions(seed=None))
    source = ShardSource(open_storage(str(tmp_path)))
    assert source.classes == ("cat", "dog")
    assert [source.index.name(number) for number in range(2)] == ["class0/00.jpg", "class1/01.png"]
    table.write_text("file,label\n")
    with pytest.raises(DataError, match="needs the columns path and label, not file, label"):
        list_items(table)
    table.unlink()


@pytest.mark.parametrize(
    "damage", ["flip", "truncate", "zero", "append", "exchange", "delete", "foreign", "copy", "index"]
)
def test_whatever_is_damaged_is_named(shards: Path, damage: str) -> None:
    assert verify_shards(shards) == []
    names = sorted(path.name for path in shards.glob("*.tar"))
    path, data = shards / names[1], (shards / names[1]).read_bytes()
    expected = {(names[1], "damaged")}
    if damage == "flip":
        path.write_bytes(data[:700] + bytes([data[700] ^ 4]) + data[701:])
    elif damage == "truncate":
        path.write_bytes(data[:-512])
    elif damage == "zero":
        path.write_bytes(data[:512] + bytes(512) + data[1024:])
    elif damage == "append":
        path.write_bytes(data + bytes(512))
    elif damage == "exchange":
        path.write_bytes((shards / names[0]).read_bytes())
        expected = {(names[1], "swapped")}
    elif damage == "delete":
        path.unlink()
        expected = {(names[1], "missing")}
    elif damage == "foreign":
        (shards / "shard-000099.tar").write_bytes(bytes(1024))
        expected = {("shard-000099.tar", "unexpected")}
    elif damage == "copy":
        (shards / "copy.tar").write_bytes(data)
        expected = {("copy.tar", "unexpected")}
    else:
        index = shards / "index.npy"
        index.write_bytes(index.read_bytes()[:-1] + b"\1")
        expected = {("index.npy", "damaged")}
    assert {(problem.file, problem.what) for problem in verify_shards(shards)} == expected


def test_reading_gives_the_manifest_less_what_is_damaged(shards: Path) -> None:
    source = ShardSource(open_storage(str(shards)))
    damaged = {3, 17}
    for number in damaged:
        record = source.index.records[number]
        path = shards / source.index.manifest.shards[int(record["shard"])].name
        data = bytearray(path.read_bytes())
        data[int(record["offset"]) + int(record["length"]) // 2] ^= 255
        path.write_bytes(bytes(data))
    source = ShardSource(open_storage(str(shards)))
    with pytest.raises(BadSampleError, match=r"shard-0.*, sample 3 \(class.*\): is damaged"):
        source[3]

    def small(image: np.ndarray, random: object) -> np.ndarray:
        return image[:8, :8]

    loader = Loader(source, Order(SAMPLES, 4, seed=0), [small])
    seen: list[int] = []
    bad: list[int] = []
    for step in range(loader.order.steps_per_epoch):
        batch = loader.read(step)
        assert batch.counted == len(batch.images) == len(batch.labels) == len(batch.numbers)
        seen += batch.numbers
        bad += [error.number for error in batch.bad]
    assert sorted(bad) == sorted(damaged)
    assert sorted(seen) == sorted(set(range(SAMPLES)) - damaged)
    alone = Loader(source, Order(SAMPLES, 1), [small]).read(3)
    assert (alone.counted, alone.numbers, len(alone.bad)) == (0, (4,), 1), "a stand-in is computed and not counted"


def test_shards_are_read_through_fsspec(shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec

    monkeypatch.setenv("CRUCIFORM_CACHE", str(tmp_path / "cache"))
    memory = fsspec.filesystem("memory")
    for path in shards.iterdir():
        memory.pipe_file(f"/set/train/{path.name}", path.read_bytes())
    local, remote = ShardSource(open_storage(str(shards))), open_dataset("shards", Opening("memory://set", "train"))
    assert all(np.array_equal(local[number].image, remote[number].image) for number in range(SAMPLES))
    for address in ("pipe:cat x", "ftp://host/x", "local://x"):
        with pytest.raises(DataError, match=r"the protocol must be one of file, memory|can't be read|does not exist"):
            ShardSource(open_storage(address))


def test_a_store_that_fails_for_a_moment_is_asked_again(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec

    fsspec.filesystem("memory").pipe_file("/flaky/x", b"0123456789")
    monkeypatch.setattr("cruciform.data.sharding.storage.FIRST_WAIT", 0.001)
    storage = RemoteStorage("memory://flaky")
    answers = iter([OSError("429"), b"01", b"0123"])

    def cat_file(path: str, start: int | None = None, end: int | None = None) -> bytes:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(storage._system, "cat_file", cat_file)
    assert storage.read_range("x", 0, 4) == b"0123"
    answers = iter([OSError("500")] * 9)
    with pytest.raises(DataError, match="can't be read after 4 attempts: 500"):
        storage.read_range("x", 0, 4)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"format": 2}',
        '{"format": 1, "classes": ["a"], "samples": -1, "shards": [], "index": [], "names": []}',
        '{"format": 1, "classes": ["a"], "samples": 1, "shards": [["../x", 1, "' + "0" * 64 + '"]]}',
    ],
)
def test_a_manifest_that_nobody_wrote_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="is not a manifest of shards|has format|its checksum does not match"):
        Manifest.from_json(text, "x")


def test_the_commands_say_what_they_did(images: Path, tmp_path: Path) -> None:
    out = tmp_path / "train"
    written = CliRunner().invoke(app, ["shard", "write", str(images), str(out), "--size", "20KB"])
    assert written.exit_code == 0
    assert "30 samples of 3 classes in" in written.output
    assert "all files are valid" in CliRunner().invoke(app, ["shard", "verify", str(out)]).output
    (out / "shard-000000.tar").write_bytes(b"")
    bad = CliRunner().invoke(app, ["shard", "verify", str(out), "--json"])
    assert bad.exit_code == 1
    assert "shard-000000.tar" in bad.output


def test_sizes_are_read_with_their_units() -> None:
    assert [read_bytes(text) for text in ("256MB", "1.5 kb", "7", "2GB")] == [256_000_000, 1500, 7, 2_000_000_000]
    with pytest.raises(OptionError, match="'big' is not a size"):
        read_bytes("big")


def test_an_index_is_not_read_when_it_is_opened(shards: Path) -> None:
    source = ShardSource(open_storage(str(shards)))
    assert isinstance(source.index.records, np.memmap)
    assert io.BytesIO(source.read(0)).read(2)


def test_folders_and_shards_have_the_same_classes(tmp_path: Path) -> None:
    for name in ("cat", "dog", ".ipynb_checkpoints"):
        (tmp_path / name).mkdir()
    for name in ("dog", ".ipynb_checkpoints"):
        Pillow.fromarray(np.zeros((2, 2, 3), np.uint8)).save(tmp_path / name / "a.png")
    source, listing = FolderSource(tmp_path, short_side=None), list_items(tmp_path)
    assert source.classes == listing.classes == ("cat", "dog")
    assert [item.label for item in listing.items] == source.labels.tolist() == [1]
