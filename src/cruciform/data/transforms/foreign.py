"""Transforms of other libraries: torchvision, timm, albumentations, or any function of one image.

They draw from the global generators of Python, numpy and torch, which are seeded from the sample's own key first and
restored after, so that such a transform is as reproducible as ours. Prefetching threads can't share global generators
with the training thread, so the loader reads samples in the training thread where such a transform is used.
"""

import random as python_random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from cruciform.data.samples.pillow import Pillow
from cruciform.data.samples.source import Image
from cruciform.errors import DataError


@dataclass(frozen=True)
class ForeignTransform:
    """A transform of another library.

    Attributes:
        function: Takes a Pillow image where the sample is a uint8 image, else the array. Returns a Pillow image, a
            channels-last array or a channels-first tensor, of uint8 where the input is. albumentations transforms are
            called with keywords, as they expect.
    """

    function: Callable[..., Any]

    def __call__(self, image: Image, random: np.random.Generator) -> Image:
        """Return the transformed image."""
        seed = int(random.integers(2**31))
        before = python_random.getstate(), np.random.get_state(), torch.get_rng_state()
        python_random.seed(seed)
        np.random.seed(seed)
        torch.default_generator.manual_seed(seed)
        try:
            made = self._as_image(self._call(np.ascontiguousarray(image), seed))
        finally:
            python_random.setstate(before[0])
            np.random.set_state(before[1])
            torch.set_rng_state(before[2])
        if image.dtype == np.uint8 and np.issubdtype(made.dtype, np.floating):
            # Images for evaluation stay uint8, so the network would be trained on another scale.
            raise DataError(
                f"the transform turns uint8 images into {made.dtype}. data.mean and data.std normalize them later, for "
                "training and evaluation alike, so leave out ToTensor and Normalize: torchvision's v2.PILToTensor() "
                "and timm's create_transform(..., normalize=False) keep uint8"
            )
        return made

    def _call(self, image: Image, seed: int) -> Any:
        if type(self.function).__module__.partition(".")[0] == "albumentations":
            self.function.set_random_seed(seed)  # type: ignore[attr-defined]
            return self.function(image=image)["image"]
        if image.ndim == 3 and image.dtype == np.uint8 and image.shape[-1] in (1, 3):
            return self.function(Pillow.fromarray(image[..., 0] if image.shape[-1] == 1 else image))
        return self.function(image)

    def _as_image(self, result: Any) -> Image:
        if isinstance(result, torch.Tensor):
            array: Image = result.movedim(0, -1).numpy()
            return array
        if isinstance(result, Pillow.Image):
            pixels = np.asarray(result)
            return pixels[..., None] if pixels.ndim == 2 else pixels
        if isinstance(result, np.ndarray):
            return np.asarray(result)
        raise DataError(f"the transform returned {type(result).__name__}, not a Pillow image, array or tensor")
