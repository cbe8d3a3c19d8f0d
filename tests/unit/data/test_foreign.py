"""Other people's transforms are as reproducible as ours, and leave the training's own random numbers alone."""

import random

import numpy as np
import pytest
import torch
from PIL import Image

from cruciform.data.loader import Loader
from cruciform.data.order import Order
from cruciform.data.samples.source import ArraySource
from cruciform.data.transforms.foreign import ForeignTransform
from cruciform.errors import DataError

IMAGE = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)


def dice(number: int) -> np.random.Generator:
    return np.random.default_rng(number)


def check(function: object) -> None:
    transform = ForeignTransform(function)  # type: ignore[arg-type]
    first, again, other = transform(IMAGE, dice(1)), transform(IMAGE, dice(1)), transform(IMAGE, dice(2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other), "it must be random, or this test shows nothing"
    assert first.shape[-1] == 3


def test_functions_that_use_any_global_generator() -> None:
    check(lambda image: np.asarray(image) + np.random.randint(0, 99))
    check(lambda image: np.asarray(image) + random.randrange(99))
    check(lambda image: torch.randint(0, 256, (3, 8, 8), dtype=torch.uint8))


def test_torchvisions_transforms(libraries: None) -> None:
    from torchvision.transforms import v2

    check(v2.Compose([v2.RandomResizedCrop(8), v2.RandomHorizontalFlip(), v2.PILToTensor()]))
    check(v2.Compose([v2.RandAugment(), v2.RandomCrop(8)]))


def test_timms_transforms(libraries: None) -> None:
    from timm.data import create_transform

    check(create_transform(8, is_training=True, auto_augment="rand-m9-mstd0.5", normalize=False))
    scaled = ForeignTransform(create_transform(8, is_training=True))
    with pytest.raises(
        DataError, match=r"turns uint8 images into float32.*leave out ToTensor and Normalize.*normalize=False"
    ):
        scaled(IMAGE, dice(0))


def test_the_networks_own_random_numbers_are_not_touched() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    ForeignTransform(lambda image: (255 * torch.rand(3, 4, 4)).byte())(IMAGE, dice(0))
    assert torch.equal(torch.rand(3), expected)


def test_grey_images_and_results_of_all_kinds() -> None:
    grey = IMAGE[..., :1]
    assert ForeignTransform(lambda image: image)(grey, dice(0)).shape == (16, 16, 1)
    assert ForeignTransform(lambda image: image.resize((4, 4)))(IMAGE, dice(0)).shape == (4, 4, 3)
    assert isinstance(ForeignTransform(lambda image: image)(IMAGE, dice(0)), np.ndarray)
    floats = IMAGE.astype(np.float32)
    assert ForeignTransform(lambda array: array * 2)(floats, dice(0))[0, 0, 0] == 2 * floats[0, 0, 0]
    assert isinstance(Image.fromarray(IMAGE), Image.Image)
    with pytest.raises(DataError, match="the transform returned str"):
        ForeignTransform(lambda image: "no image")(IMAGE, dice(0))


def test_a_loader_reads_in_the_callers_thread_then() -> None:
    import threading

    seen = set()

    def note(image: Image.Image) -> Image.Image:
        seen.add(threading.current_thread())
        return image

    source = ArraySource(np.stack([IMAGE] * 4), np.zeros(4, np.int64), ("a",))
    with Loader(source, Order(4, 2), (ForeignTransform(note),), threads=2).batches(range(2)) as batches:
        list(batches)
    assert seen == {threading.main_thread()}
