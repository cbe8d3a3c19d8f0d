"""Other people's transforms, as they are: torchvision's, timm's, albumentations', or any function of one image.

They draw from the global generators of Python, numpy and torch. Those are set from the sample's own key first and put
back after, so that such a transform is as reproducible as ours. Global generators can't be shared with the threads that
read ahead while a network trains: samples are read in the training thread then, which the loader sees to.
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
    """A transform that knows nothing of us.

    Attributes:
        function: Takes a Pillow image where the sample is one in bytes, else the array; returns a Pillow image, an
            array with channels last, or a tensor with channels first; of bytes, bytes. albumentations' own are called
            their way.
    """

    function: Callable[..., Any]

    def __call__(self, image: Image, random: np.random.Generator) -> Image:
        """Returns what it makes of the image."""
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
            # The images that a network is judged on stay bytes: it would be trained on another scale.
            raise DataError(
                f"the transform makes {made.dtype} of bytes; data.mean and data.deviation scale them later, as those "
                "that are judged, so leave out ToTensor and Normalize: torchvision's v2.PILToTensor() and timm's "
                "create_transform(..., normalize=False) keep bytes"
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
        raise DataError(f"the transform returned {type(result).__name__}; a Pillow image, array or tensor is needed")
