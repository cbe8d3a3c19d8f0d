"""Transforms of samples: functions of an image and a random generator. Channels last, any number of spatial axes.

Random transforms draw from the generator that is passed to them and from nothing else.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cruciform.data.samples.pillow import Pillow
from cruciform.data.samples.randomness import SampleGenerator
from cruciform.data.samples.recipe_setting import RecipeSetting
from cruciform.data.samples.source import Image
from cruciform.errors import DataError, OptionError

Transform = Callable[[Image, SampleGenerator], Image]


def _spatial(image: Image) -> tuple[int, ...]:
    return image.shape[:-1]


def _too_small(image: Image, size: int) -> DataError:
    return DataError(
        f"a crop of size {size} is larger than an image of size {_spatial(image)}; for folders and shards, "
        f"data.short_side={size} resizes every image to at least that"
    )


def _cut(image: Image, corner: list[int], size: int) -> Image:
    return image[tuple(slice(start, start + size) for start in corner)]


def _check_extents(size: int, padding: int = 0) -> None:
    if size < 1 or padding < 0:
        raise OptionError(f"size must be 1 or more, and padding 0 or more; not {size} and {padding}")


@dataclass(frozen=True)
class RandomCrop(RecipeSetting):
    """Crop at a random position.

    Attributes:
        size: Size of the crop along every axis.
        padding: Padding on all sides, applied first.
        padding_mode: ``reflect``, or ``constant``: zeros.
    """

    size: int
    padding: int = 0
    padding_mode: Literal["reflect", "constant"] = "reflect"
    kind: Literal["random-crop"] = "random-crop"

    def __post_init__(self) -> None:
        _check_extents(self.size, self.padding)

    def __call__(self, image: Image, random: np.random.Generator) -> Image:
        """Return a view without padding, else a copy."""
        extents = [length + 2 * self.padding for length in _spatial(image)]
        if min(extents) < self.size:
            raise _too_small(image, self.size)
        draws = random.random(len(extents))
        corner = [int(draw * (extent - self.size + 1)) for draw, extent in zip(draws, extents, strict=True)]
        if not self.padding:
            return _cut(image, corner, self.size)
        if self.padding_mode == "reflect":
            for axis, start in enumerate(corner):
                image = image.take(self._reflected(start, image.shape[axis]), axis)
            return image
        return self._cut_padded(image, corner)

    def _reflected(self, start: int, length: int) -> Image:
        if self.padding >= length:
            raise DataError(f"padding={self.padding} by reflection needs images of more pixels than that, not {length}")
        numbers = np.abs(np.arange(start - self.padding, start - self.padding + self.size))
        return np.where(numbers < length, numbers, 2 * length - 2 - numbers)

    def _cut_padded(self, image: Image, corner: list[int]) -> Image:
        window = np.zeros((self.size,) * len(corner) + image.shape[-1:], image.dtype)
        inside, outside = [], []
        for start, length in zip(corner, _spatial(image), strict=True):
            first, last = max(start - self.padding, 0), min(start - self.padding + self.size, length)
            outside.append(slice(first, last))
            inside.append(slice(first - start + self.padding, last - start + self.padding))
        window[tuple(inside)] = image[tuple(outside)]
        return window


@dataclass(frozen=True)
class CenterCrop(RecipeSetting):
    """Crop at the center.

    Attributes:
        size: Size of the crop along every axis.
    """

    size: int
    kind: Literal["center-crop"] = "center-crop"

    def __post_init__(self) -> None:
        _check_extents(self.size)

    def __call__(self, image: Image, random: np.random.Generator) -> Image:
        """Return a view."""
        if min(_spatial(image)) < self.size:
            raise _too_small(image, self.size)
        return _cut(image, [(length - self.size) // 2 for length in _spatial(image)], self.size)


@dataclass(frozen=True)
class Hflip(RecipeSetting):
    """Flip a sample with probability 0.5, horizontally or along each of several axes.

    Attributes:
        axes: Spatial axes, counted from the last: 1 is horizontal.
        alternate: Whether to flip each sample in every other epoch, half of them in the first, instead of at random:
            so no sample is seen the same way in two consecutive epochs (Jordan 2024).
    """

    axes: tuple[int, ...] = (1,)
    alternate: bool = False
    kind: Literal["hflip"] = "hflip"

    def __post_init__(self) -> None:
        if not self.axes:
            raise OptionError("axes is empty; give at least one axis to flip along: 1 is horizontal")

    def __call__(self, image: Image, random: SampleGenerator) -> Image:
        """Return a view."""
        if min(self.axes) < 1 or max(self.axes) >= image.ndim:
            raise DataError(f"an image of size {_spatial(image)} can't be flipped along the axes {self.axes}")
        if self.alternate:
            return np.flip(image, tuple(-1 - axis for axis in self.axes)) if random.coin ^ random.epoch % 2 else image
        draws = random.random(len(self.axes))
        chosen = tuple(-1 - axis for axis, draw in zip(self.axes, draws, strict=True) if draw < 0.5)
        return np.flip(image, chosen) if chosen else image


@dataclass(frozen=True)
class RandomResizedCrop(RecipeSetting):
    """Crop a window of random area and aspect ratio and resize it: Inception's crop, for 2-D images.

    Attributes:
        size: Height and width of the result.
        min_scale: Smallest area of the crop, as a fraction of the image.
        max_ratio: Largest aspect ratio of the crop; its inverse is the smallest.
    """

    size: int
    min_scale: float = 0.08
    max_ratio: float = 4 / 3
    kind: Literal["random-resized-crop"] = "random-resized-crop"

    def __post_init__(self) -> None:
        _check_extents(self.size)
        if not (0 < self.min_scale <= 1 and 1 <= self.max_ratio < math.inf):
            raise OptionError(
                f"min_scale must be above 0 and at most 1, max_ratio at least 1; not {self.min_scale} and "
                f"{self.max_ratio}"
            )

    def __call__(self, image: Image, random: np.random.Generator) -> Image:
        """Return a new image."""
        _refuse_other_images(image, self.kind)
        height, width = _spatial(image)
        draws = random.random(4)
        area = height * width * (self.min_scale + (1 - self.min_scale) * draws[0])
        ratio = np.exp((2 * draws[1] - 1) * np.log(self.max_ratio))
        w, h = min(width, (area * ratio) ** 0.5), min(height, (area / ratio) ** 0.5)
        x, y = draws[2] * (width - w), draws[3] * (height - h)
        window = Pillow.fromarray(image).resize(
            (self.size, self.size), Pillow.Resampling.BILINEAR, box=(x, y, x + w, y + h)
        )
        return np.asarray(window)


@dataclass(frozen=True)
class Resize(RecipeSetting):
    """Resize a 2-D image, whatever its aspect ratio: to train on smaller images where all of a data set have one size.

    Attributes:
        size: Height and width of the result.
    """

    size: int
    kind: Literal["resize"] = "resize"

    def __post_init__(self) -> None:
        _check_extents(self.size)

    def __call__(self, image: Image, random: np.random.Generator) -> Image:
        """Return a new image."""
        _refuse_other_images(image, self.kind)
        return np.asarray(Pillow.fromarray(image).resize((self.size, self.size), Pillow.Resampling.BILINEAR))


def _refuse_other_images(image: Image, kind: str) -> None:
    if image.ndim != 3 or image.dtype != np.uint8 or image.shape[-1] != 3:
        raise DataError(f"{kind} takes uint8 color images, not {image.shape} of {image.dtype}")


RecipeTransform = RandomCrop | CenterCrop | Hflip | RandomResizedCrop | Resize
"""The transforms that a recipe can name. To add one, add a class above and its name here."""
