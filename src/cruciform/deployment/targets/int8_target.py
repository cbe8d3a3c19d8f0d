"""What int8 engines have in common: real calibration images, or the quantization ranges are wrong."""

import numpy as np
import torch
from numpy.typing import NDArray

from cruciform.deployment.targets.target import Target
from cruciform.errors import DeployError


class Int8Target(Target):
    """An engine with int8 weights and activations, quantized after training on calibration images."""

    precision = "int8"
    tolerance = 0.1
    needs_images = True

    def calibration_images(self, input_size: tuple[int, ...]) -> NDArray[np.float32]:
        """Return the calibration images of this target.

        Args:
            input_size: The input size of the network.

        Raises:
            DeployError: There are none, or they do not fit the network.
        """
        images = self.images
        if images is None or not len(images):
            raise DeployError(
                f"{self.name} is calibrated on images, and has none: deploy a run, which has its own, or give "
                f"preprocessed images with DeployOptions(images=...)"
            )
        if images.shape[1:] != input_size:
            given, wanted = ("×".join(map(str, size)) for size in (images.shape[1:], input_size))
            raise DeployError(
                f"the calibration images of {self.name} have size {given}, but the network takes {wanted}; preprocess "
                "them as for evaluation"
            )
        return np.ascontiguousarray(images, dtype=np.float32)


def needs_reduced_range() -> bool:
    """Return whether weights need 7 bits: without VNNI two int8 products are summed in int16, which may overflow."""
    abilities = torch.cpu.get_capabilities()
    return not (abilities.get("avx512_vnni") or abilities.get("avx_vnni"))
