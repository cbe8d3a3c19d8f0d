"""The images that an engine of 8 bits learns its ranges from: real ones, or its results are worth nothing."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cruciform.errors import DeployError


def calibration_images(target: str, images: NDArray[Any] | None, input_size: tuple[int, ...]) -> NDArray[np.float32]:
    """Returns the images that a target was given, where they fit the network.

    Args:
        target: The name of the target.
        images: What it was given, as the network is given images when it is judged.
        input_size: What the network reads.
    """
    if images is None or not len(images):
        raise DeployError(
            f"{target} learns its ranges from images, and has none. Deploy a run, which knows its own: 'cruciform "
            f"deploy RUN --target {target} -o DIR'; or in Python: TARGETS.get({target!r}).with_images(images)"
        )
    if images.shape[1:] != input_size:
        given, wanted = ("×".join(map(str, size)) for size in (images.shape[1:], input_size))
        raise DeployError(
            f"{target} was given images of {given} to learn its ranges from, but the network reads {wanted}; "
            "prepare them as the network is given them when it is judged"
        )
    return np.ascontiguousarray(images, dtype=np.float32)
