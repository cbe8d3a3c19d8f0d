import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from cruciform.data.loader import Loader
from cruciform.data.open_dataset import open_dataset
from cruciform.data.order import Order
from cruciform.data.samples.source import ArraySource, Opening, Part, is_grouped
from cruciform.data.sets.folder import decode
from cruciform.data.transforms.transforms import CenterCrop, Hflip, RandomCrop
from cruciform.data.transforms.whitening import Whitening, fit_zca, normalize_contrast, whiten
from cruciform.errors import DataError
from cruciform.training.recipe.recipe import DataTable
from cruciform.training.runtime.runtime import SingleProcess
from cruciform.training.setup.recipe_data import open_datasets


def cifar(folder: Path, records: int = 4) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    numbers = np.random.default_rng(0)
    for name in (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"):
        data = numbers.integers(0, 256, (records, 3073), dtype=np.uint8)
        data[:, 0] = np.arange(records) % 10
        (folder / f"{name}.bin").write_bytes(data.tobytes())
    return folder


def test_cifar10_records_are_a_label_and_three_planes(tmp_path: Path) -> None:
    folder = cifar(tmp_path)
    source = open_dataset("cifar10", Opening(folder, "train"))
    raw = np.frombuffer((folder / "data_batch_1.bin").read_bytes(), np.uint8).reshape(-1, 3073)
    assert len(source) == 20
    assert source[3].label == 3
    assert source[3].image[5, 7, 2] == raw[3, 1 + 2 * 1024 + 5 * 32 + 7]


def test_what_is_held_out_of_a_folder_is_of_all_classes(tmp_path: Path) -> None:
    for name in ("cat", "dog", "eel"):
        (tmp_path / "train" / name).mkdir(parents=True)
        for number in range(10):
            Image.new("RGB", (4, 4)).save(tmp_path / "train" / name / f"{number}.png")
    table = DataTable(kind="folder", path=str(tmp_path), holdout=6)
    train, test = open_datasets(table, SingleProcess(torch.device("cpu")))
    assert np.bincount(test.labels).tolist() == [2, 2, 2]
    assert np.bincount(train.labels).tolist() == [8, 8, 8]
    assert [train[number].label for number in range(24)] == train.labels.tolist()
    assert not set(train.numbers) & set(test.numbers)


@pytest.mark.parametrize("name", ["x.bmp", "more/x.png"])
def test_images_that_would_be_passed_over_are_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "train" / "cat"
    (folder / name).parent.mkdir(parents=True)
    Image.new("RGB", (4, 4)).save(folder / name)
    Image.new("RGB", (4, 4)).save(folder / "0.png")
    (folder / "notes.txt").write_text("no image, and nobody would think so")
    (folder / ".more").mkdir()
    odd = name.partition("/")[0]
    with pytest.raises(
        DataError, match=f"contains 1 file or folder that can't be read as images, such as {odd}.*convert"
    ):
        open_dataset("folder", Opening(tmp_path, "train"))


def test_an_image_too_small_for_its_window_is_named(tmp_path: Path) -> None:
    (tmp_path / "train" / "cat").mkdir(parents=True)
    Image.new("RGB", (12, 10)).save(tmp_path / "train" / "cat" / "small.png")
    source = open_dataset("folder", Opening(tmp_path, "train"))
    whole = Part(Part(source, [0]), [0])
    with pytest.raises(
        DataError, match=r"small.png: a crop of size 16 is larger than an image of size \(10, 12\).*data.short_side=16"
    ):
        Loader(whole, Order(1, 1), (CenterCrop(16),)).read(0)


@pytest.mark.parametrize(
    ("labels", "grouped"),
    [
        ([1, 1, 0, 0], True),
        ([0, 0, 1, 1], True),
        ([0, 1, 0, 1], False),
        ([2, 2, 0, 1, 1], True),
        ([0, 0, 1, 0], False),
        ([3], True),
    ],
)
def test_classes_in_one_piece_each_are_known_in_any_order(labels: list[int], grouped: bool) -> None:
    assert is_grouped(np.array(labels)) == grouped


def test_what_is_held_out_of_cifar10_are_the_last(tmp_path: Path) -> None:
    table = DataTable(kind="cifar10", path=str(cifar(tmp_path)), holdout=5)
    train, test = open_datasets(table, SingleProcess(torch.device("cpu")))
    assert (train.numbers, test.numbers) == (range(15), range(15, 20))


def test_broken_cifar10_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist.*CRUCIFORM_DATA.*data.path"):
        open_dataset("cifar10", Opening(tmp_path / "absent", "train"))
    folder = cifar(tmp_path / "short")
    (folder / "data_batch_2.bin").write_bytes(b"x" * 3000)
    with pytest.raises(DataError, match="3,000 bytes, which is not a multiple of the record size"):
        open_dataset("cifar10", Opening(folder, "train"))
    folder = cifar(tmp_path / "label")
    data = bytearray((folder / "test_batch.bin").read_bytes())
    data[0] = 77
    (folder / "test_batch.bin").write_bytes(data)
    with pytest.raises(DataError, match="label 77, but the data has 10 classes"):
        open_dataset("cifar10", Opening(folder, "test"))


def jpeg(size: tuple[int, int], color: tuple[int, int, int] = (200, 100, 50)) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, color).save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


def test_images_come_with_their_shorter_side_as_asked() -> None:
    assert decode(jpeg((400, 300))).shape == (300, 400, 3)
    assert decode(jpeg((400, 300)), 64).shape == (64, 85, 3)
    assert decode(jpeg((30, 90)), 64).shape == (192, 64, 3)
    assert abs(int(decode(jpeg((400, 300)), 64)[10, 10, 0]) - 200) <= 2


@pytest.mark.parametrize("short_side", [None, 8])
def test_grey_of_16_bits_keeps_its_greys(short_side: int | None) -> None:
    ramp = np.arange(0, 65536, 256, dtype=np.uint16).reshape(16, 16)
    file = io.BytesIO()
    Image.fromarray(ramp).save(file, "PNG")
    image = decode(file.getvalue(), short_side)
    if short_side is None:
        assert np.array_equal(image, np.repeat((ramp >> 8).astype(np.uint8)[:, :, None], 3, axis=2))
    assert image.mean() == pytest.approx(127.5, abs=1)


def test_a_folder_is_sorted_and_its_folders_are_the_classes(tmp_path: Path) -> None:
    for name, color in (("tench", (255, 0, 0)), ("church", (0, 255, 0))):
        for number in (2, 1):
            path = tmp_path / "train" / name / f"{number}.JPEG"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(jpeg((20, 20), color))
    (tmp_path / "train" / "church" / "notes.txt").write_text("not an image")
    source = open_dataset("folder", Opening(tmp_path, "train"))
    assert source.classes == ("church", "tench")
    assert [source[index].label for index in range(len(source))] == [0, 0, 1, 1]
    assert source[0].image[0, 0, 1] > 200
    with pytest.raises(DataError, match="has no folder val or test"):
        open_dataset("folder", Opening(tmp_path, "test"))


def test_what_is_no_image_names_its_file(tmp_path: Path) -> None:
    path = tmp_path / "train" / "a" / "x.jpg"
    path.parent.mkdir(parents=True)
    path.write_bytes(jpeg((50, 50))[:300])
    source = open_dataset("folder", Opening(tmp_path, "train"))
    with pytest.raises(DataError, match=r"x\.jpg: can't be decoded"):
        source[0]
    path.write_bytes(b"GIF89a not allowed")
    with pytest.raises(DataError, match="can't be decoded"):
        source[0]


def test_volumes_get_their_channel(tmp_path: Path) -> None:
    path = tmp_path / "v.npz"
    images = np.random.default_rng(0).integers(0, 256, (6, 4, 5, 6), dtype=np.uint8)
    labels = np.array([[0], [1], [0], [1], [0], [1]])
    np.savez(path, train_images=images, train_labels=labels, test_images=images[:2], test_labels=labels[:2])
    source = open_dataset("volumes", Opening(path, "train"))
    assert source[1].image.shape == (4, 5, 6, 1)
    assert source.classes == ("0", "1")
    np.savez(path, other=images)
    with pytest.raises(DataError, match="is not an .npz file with train_images"):
        open_dataset("volumes", Opening(path, "train"))


def test_pickles_in_npz_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "v.npz"
    evil = np.array([{"a": 1}], dtype=object)
    np.savez(path, train_images=evil, train_labels=evil)
    with pytest.raises(DataError, match="allow_pickle"):
        open_dataset("volumes", Opening(path, "train"))


def array_source(samples: int = 40, size: int = 8) -> ArraySource:
    numbers = np.random.default_rng(1)
    images = numbers.integers(0, 256, (samples, size, size, 3), dtype=np.uint8)
    return ArraySource(images, numbers.integers(0, 10, samples), tuple("abcdefghij"))


def test_whitened_images_have_the_covariance_that_the_formula_says() -> None:
    rows = normalize_contrast(array_source(5000, 3).images.reshape(5000, -1).astype(np.float32), 55.0)
    assert np.allclose(np.linalg.norm(rows, axis=1), 55, rtol=1e-5)
    assert np.allclose(rows.mean(axis=1), 0, atol=1e-4)
    mean, matrix = fit_zca(rows, 0.1)
    assert np.allclose(matrix, matrix.T, atol=1e-6)
    centerd = rows.astype(np.float64) - mean
    covariance = centerd.T @ centerd / len(rows)
    # P (C + εI) P = I
    assert np.allclose(matrix @ (covariance + 0.1 * np.eye(27)) @ matrix, np.eye(27), atol=1e-4)


def test_whitening_is_kept_checked_and_equal_to_the_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRUCIFORM_CACHE", str(tmp_path))
    source = array_source()
    train, test = Part(source, range(30)), Part(source, range(30, 40))
    first = whiten(train, [test], Whitening())
    (kept,) = tmp_path.iterdir()
    before = (kept / "0.npy").read_bytes()
    assert len(first[0]) == 30
    assert len(first[1]) == 10
    # A damaged cache is not trusted but made anew, to the same bits.
    (kept / "0.npy").write_bytes(before[:-4] + b"\0\0\0\1")
    again = whiten(train, [test], Whitening())
    assert (kept / "0.npy").read_bytes() == before
    assert np.array_equal(again[1].images, first[1].images)
    # Other data, or other settings, are other files.
    whiten(Part(source, range(20)), [test], Whitening())
    whiten(train, [test], Whitening(eps=0.2))
    assert len(list(tmp_path.iterdir())) == 3


def test_flat_images_survive_contrast_normalization() -> None:
    assert (normalize_contrast(np.full((2, 12), 7, np.float32), 55.0) == 0).all()


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_a_loader_gives_the_same_batches_whoever_asks(threads: int) -> None:
    source = array_source()
    order = Order(len(source), 16, seed=3)
    transforms = (RandomCrop(6), Hflip())
    one = Loader(source, order, transforms, seed=3, threads=threads)
    with one.batches(range(2, 7)) as batches:
        whole = list(batches)
    assert [batch.total for batch in whole] == [8, 16, 16, 8, 16]
    for step, batch in zip(range(2, 7), whole, strict=True):
        halves = [Loader(source, order, transforms, seed=3, rank=rank, world=2).read(step) for rank in range(2)]
        assert halves[0].numbers + halves[1].numbers == batch.numbers
        assert (halves[1].images == batch.images[len(halves[0].numbers) :]).all()
        assert [int(label) for label in batch.labels] == [source[number].label for number in batch.numbers]


def test_a_rank_without_samples_takes_part_and_counts_nothing() -> None:
    source = array_source(5)
    loaders = [Loader(source, Order(5, 4), rank=rank, world=3) for rank in range(3)]
    last = [loader.read(1) for loader in loaders]
    assert [batch.counted for batch in last] == [1, 0, 0]
    assert all(len(batch.images) == 1 and batch.total == 1 for batch in last)


def test_images_lie_in_memory_with_their_channels_last() -> None:
    import torch

    images = Loader(array_source(), Order(40, 8)).read(0).images
    assert images.shape == (8, 3, 8, 8)
    assert images.is_contiguous(memory_format=torch.channels_last)


def test_images_of_different_sizes_say_what_to_do(tmp_path: Path) -> None:
    for number, size in enumerate(((20, 20), (30, 20))):
        path = tmp_path / "train" / "a" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(size))
    source = open_dataset("folder", Opening(tmp_path, "train"))
    with pytest.raises(DataError, match="different sizes .*add a crop to the transforms"):
        Loader(source, Order(2, 2)).read(0)
    assert Loader(source, Order(2, 2), (CenterCrop(16),)).read(0).images.shape == (2, 3, 16, 16)


def test_an_error_in_a_reading_thread_reaches_the_caller() -> None:
    loader = Loader(array_source(), Order(40, 8), (RandomCrop(99),))
    with pytest.raises(DataError, match="a crop of size 99"), loader.batches(range(5)) as batches:
        next(batches)
