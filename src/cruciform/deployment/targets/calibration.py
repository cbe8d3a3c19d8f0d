"""Calibration images of int8 engines: real ones, or the quantization ranges are wrong."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cruciform.errors import DeployError


def calibration_images(target: str, images: NDArray[Any] | None, input_size: tuple[int, ...]) -> NDArray[np.float32]:
    """Return the calibration images of a target; raise where they do not fit the network.

    Args:
        target: The name of the target.
        images: Images, preprocessed as for evaluation.
        input_size: The input size of the network.
    """
    if images is None or not len(images):
        raise DeployError(
            f"{target} is calibrated on images, and has none: deploy a run, which has its own, or give preprocessed "
            f"images with DeployOptions(images=...)"
        )
    if images.shape[1:] != input_size:
        given, wanted = ("×".join(map(str, size)) for size in (images.shape[1:], input_size))
        raise DeployError(
            f"the calibration images of {target} have size {given}, but the network takes {wanted}; preprocess them as "
            "for evaluation"
        )
    return np.ascontiguousarray(images, dtype=np.float32)
