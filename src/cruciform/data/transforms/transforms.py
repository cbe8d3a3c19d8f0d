"""What is done to a sample: a function of the image and of random numbers of its own. Channels last, any rank.

Random parts draw from the generator they are given and from nowhere else.
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
        f"a window of {size} can't be cut out of an image of {_spatial(image)}; in folders and shards, "
        f"data.short_side={size} brings every image to at least that"
    )


def _cut(image: Image, corner: list[int], size: int) -> Image:
    return image[tuple(slice(start, start + size) for start in corner)]


def _check_extents(size: int, padding: int = 0) -> None:
    if size < 1 or padding < 0:
        raise OptionError(f"a window has at least one pixel, and padding is 0 or more; not {size} and {padding}")


@dataclass(frozen=True)
class RandomCrop(RecipeSetting):
    """Cuts a window at random.

    Attributes:
        size: Extent of the window along every axis.
        padding: By how much the image is enlarged on all sides first.
        mode: What it is enlarged with: its mirror image, or zeros.
    """

    size: int
    padding: int = 0
    mode: Literal["reflect", "zeros"] = "reflect"
    kind: Literal["random-crop"] = "random-crop"

    def __post_init__(self) -> None:
        _check_extents(self.size, self.padding)

    def __call__(self, image: Image, random: np.random.Generator) -> Image:
        """Returns a view where nothing is padded, else a copy."""
        extents = [length + 2 * self.padding for length in _spatial(image)]
        if min(extents) < self.size:
            raise _too_small(image, self.size)
        draws = random.random(len(extents))
        corner = [int(draw * (extent - self.size + 1)) for draw, extent in zip(draws, extents, strict=True)]
        if not self.padding:
            return _cut(image, corner, self.size)
        if self.mode == "reflect":
            for axis, start in enumerate(corner):
                image = image.take(self._reflected(start, image.shape[axis]), axis)
            return image
        return self._cut_padded(image, corner)

    def _reflected(self, start: int, length: int) -> Image:
        if self.padding >= length:
            raise DataError(f"an image of {length} pixels can't be mirrored {self.padding} pixels beyond its border")
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
    """Cuts the window in the middle.

    Attributes:
        size: Extent of the window along every axis.
    """

    size: int
    kind: Literal["center-crop"] = "center-crop"

    def __post_init__(self) -> None:
        _check_extents(self.size)

    def __call__(self, image: Image, random: np.random.Generator) -> Image:
        """Returns a view."""
        if min(_spatial(image)) < self.size:
            raise _too_small(image, self.size)
        return _cut(image, [(length - self.size) // 2 for length in _spatial(image)], self.size)


@dataclass(frozen=True)
class Mirror(RecipeSetting):
    """Mirrors half of the samples along each of some axes.

    Attributes:
        axes: Spatial axes, counted from the last: 1 is left and right.
        alternate: Whether each sample is mirrored in every other epoch, half of them in the first, in place of by
            chance: so none is seen the same way twice in a row.
    """

    axes: tuple[int, ...] = (1,)
    alternate: bool = False
    kind: Literal["mirror"] = "mirror"

    def __post_init__(self) -> None:
        if not self.axes:
            raise OptionError("name at least one of the axes to mirror along: 1 is left and right")

    def __call__(self, image: Image, random: SampleGenerator) -> Image:
        """Returns a view."""
        if min(self.axes) < 1 or max(self.axes) >= image.ndim:
            raise DataError(f"an image of {_spatial(image)} has no axes {self.axes} to be mirrored along")
        if self.alternate:
            return np.flip(image, tuple(-1 - axis for axis in self.axes)) if random.coin ^ random.epoch % 2 else image
        draws = random.random(len(self.axes))
        chosen = tuple(-1 - axis for axis, draw in zip(self.axes, draws, strict=True) if draw < 0.5)
        return np.flip(image, chosen) if chosen else image


@dataclass(frozen=True)
class RandomResizedCrop(RecipeSetting):
    """Cuts a window of random area and proportions, and brings it to one size: Inception's crop, for 2-D images.

    Attributes:
        size: Height and width of the result.
        least: Smallest share of the image's area.
        proportion: Width to height at most, and its inverse at least.
    """

    size: int
    least: float = 0.08
    proportion: float = 4 / 3
    kind: Literal["random-resized-crop"] = "random-resized-crop"

    def __post_init__(self) -> None:
        _check_extents(self.size)
        if not (0 < self.least <= 1 and 1 <= self.proportion < math.inf):
            raise OptionError(f"least is a share, proportion at least 1; not {self.least} and {self.proportion}")

    def __call__(self, image: Image, random: np.random.Generator) -> Image:
        """Returns a new image."""
        if image.ndim != 3 or image.dtype != np.uint8 or image.shape[-1] != 3:
            raise DataError(f"random-resized-crop takes color images in bytes, not {image.shape} of {image.dtype}")
        height, width = _spatial(image)
        draws = random.random(4)
        area = height * width * (self.least + (1 - self.least) * draws[0])
        proportion = np.exp((2 * draws[1] - 1) * np.log(self.proportion))
        w, h = min(width, (area * proportion) ** 0.5), min(height, (area / proportion) ** 0.5)
        x, y = draws[2] * (width - w), draws[3] * (height - h)
        window = Pillow.fromarray(image).resize(
            (self.size, self.size), Pillow.Resampling.BILINEAR, box=(x, y, x + w, y + h)
        )
        return np.asarray(window)


Augmentation = RandomCrop | CenterCrop | Mirror | RandomResizedCrop
"""The transforms that a recipe can name. A new one is a class above and its name here."""
