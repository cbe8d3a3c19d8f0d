import dataclasses
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruciform.data.samples.randomness import KeyedGenerator
from cruciform.data.transforms.transforms import (
    CenterCrop,
    Hflip,
    RandomCrop,
    RandomResizedCrop,
    RecipeTransform,
    Resize,
)
from cruciform.errors import DataError


def dice(number: int = 0) -> np.random.Generator:
    return np.random.default_rng(number)


def picture(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.int64).reshape(shape)


def test_a_random_crop_is_a_window_and_reaches_every_corner() -> None:
    image = picture(32, 32, 3)
    corners = set()
    for number in range(300):
        window = RandomCrop(30)(image, dice(number))
        assert window.shape == (30, 30, 3)
        row, column = divmod(int(window[0, 0, 0]) // 3, 32)
        assert np.array_equal(window, image[row : row + 30, column : column + 30])
        corners.add((row, column))
    assert corners == {(row, column) for row in range(3) for column in range(3)}


@given(
    st.integers(5, 12), st.integers(5, 12), st.integers(0, 4), st.sampled_from(["reflect", "zeros"]), st.integers(0, 99)
)
def test_a_padded_crop_is_a_window_of_the_padded_image(
    height: int, width: int, padding: int, mode: str, seed: int
) -> None:
    image = picture(height, width, 2) + 1
    crop = RandomCrop(5, padding, mode)  # type: ignore[arg-type]
    window = crop(image, dice(seed))
    numpy_mode = "reflect" if mode == "reflect" else "constant"
    padded = np.pad(image, ((padding, padding), (padding, padding), (0, 0)), mode=numpy_mode)  # type: ignore[call-overload]
    windows = np.lib.stride_tricks.sliding_window_view(padded, (5, 5), axis=(0, 1)).transpose(0, 1, 3, 4, 2)
    assert any(np.array_equal(window, other) for row in windows for other in row)


def test_the_center_crop_is_the_papers_test_crop() -> None:
    image = picture(32, 32, 3)
    assert np.array_equal(CenterCrop(30)(image, dice()), image[1:31, 1:31])


def test_mirror_turns_left_and_right_half_of_the_time() -> None:
    image = picture(4, 5, 3)
    results = [Hflip()(image, dice(number)) for number in range(400)]
    turned = sum(np.array_equal(result, image[:, ::-1]) for result in results)
    assert 150 < turned < 250
    assert sum(np.array_equal(result, image) for result in results) == 400 - turned


def test_volumes_are_cropped_and_mirrored_along_all_axes() -> None:
    volume = picture(6, 7, 8, 1)
    assert RandomCrop(5)(volume, dice()).shape == (5, 5, 5, 1)
    results = {Hflip((1, 2, 3))(volume, dice(number)).tobytes() for number in range(100)}
    assert len(results) == 8


def test_a_resized_crop_has_its_size_and_stays_within_the_image() -> None:
    image = np.full((40, 60, 3), 77, np.uint8)
    for number in range(50):
        window = RandomResizedCrop(16)(image, dice(number))
        assert window.shape == (16, 16, 3)
        assert (window == 77).all()


def test_a_resized_image_has_the_mean_of_the_pixels_below_each_of_its_own() -> None:
    halves = np.zeros((32, 48, 3), np.uint8)
    halves[:, 24:] = 200
    small = Resize(8)(halves, dice())
    assert small.shape == (8, 8, 3)
    assert (small[:, :3] == 0).all()
    assert (small[:, 5:] == 200).all()
    assert small.mean() == pytest.approx(halves.mean(), rel=0.02)
    with pytest.raises(DataError, match=r"resize takes uint8 color images, not \(8, 8, 1\) of int64"):
        Resize(4)(picture(8, 8, 1), dice())


def test_what_does_not_fit_is_said() -> None:
    with pytest.raises(DataError, match=r"a crop of size 30 is larger than an image of size \(28, 28\)"):
        RandomCrop(30)(picture(28, 28, 3), dice())
    with pytest.raises(DataError, match="padding=8 by reflection needs images of more pixels"):
        RandomCrop(8, padding=8)(picture(5, 5, 3), dice())
    with pytest.raises(DataError, match="can't be flipped along the axes"):
        Hflip((3,))(picture(5, 5, 3), dice())


def test_alternating_mirrors_show_each_sample_both_ways_in_turn() -> None:
    image, mirror = picture(4, 4, 3), Hflip(alternate=True)

    def mirrored(epoch: int, sample: int) -> bool:
        return not np.array_equal(mirror(image, KeyedGenerator(7).at(epoch, sample)), image)

    first = [mirrored(0, sample) for sample in range(400)]
    assert 150 < sum(first) < 250
    assert [mirrored(1, sample) for sample in range(400)] == [not turned for turned in first]
    assert [mirrored(2, sample) for sample in range(400)] == first


@pytest.mark.parametrize("kind", get_args(RecipeTransform))
def test_every_transform_is_named_and_depends_on_its_own_random_numbers_only(kind: type) -> None:
    names = {field.name: field for field in dataclasses.fields(kind)}
    assert names["kind"].default == "-".join(_words(kind.__name__))
    transform = kind(size=12) if "size" in names else kind()
    image = np.random.default_rng(0).integers(0, 256, (16, 20, 3), dtype=np.uint8)
    before = image.copy()
    results = [transform(image, KeyedGenerator(3).at(1, 5)) for _ in range(2)]
    assert np.array_equal(*results)
    assert np.array_equal(image, before), "a transform must not change the source's own image"


def _words(name: str) -> list[str]:
    starts = [index for index, letter in enumerate(name) if letter.isupper()]
    return [name[a:b].lower() for a, b in zip(starts, [*starts[1:], len(name)], strict=True)]


def test_random_numbers_belong_to_seed_epoch_and_sample() -> None:
    def draw(seed: int, epoch: int, index: int) -> float:
        return float(KeyedGenerator(seed).at(epoch, index).random())

    draws = {draw(seed, epoch, index) for seed in range(5) for epoch in range(5) for index in range(5)}
    assert len(draws) == 125
    shared = KeyedGenerator(2)
    shared.at(9, 9).random(100)
    assert float(shared.at(1, 3).random()) == draw(2, 1, 3), "what was drawn before must not matter"
