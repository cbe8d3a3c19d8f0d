"""Calibration inputs: a few hundred images without labels, from a run, a recipe or a folder of images."""

from pathlib import Path

import torch
from torch import Tensor

from cruciform.data.samples.source import spread
from cruciform.errors import DataError, OptionError
from cruciform.networks.open_network import OpenedNetwork
from cruciform.prediction.inputs import open_inputs
from cruciform.prediction.predictor import read_preparation
from cruciform.training.engine.sample_images import sample_images
from cruciform.training.recipe.cookbook import load_recipe, names_recipe

COUNT = 1024
"""Images, where the caller does not say how many."""


def calibration_images(opened: OpenedNetwork, data: str | Path | None, count: int = COUNT) -> Tensor:
    """Return preprocessed images, (n, channels, …).

    Args:
        opened: The network.
        data: A run, the name or file of a recipe, or a folder of images, which are preprocessed as the network says.
            None: the training images of the run that the network comes from.
        count: How many, evenly spaced; fewer where there are fewer.
    """
    if count < 1:
        raise OptionError(f"{count} calibration images are too few; give 1 or more, {COUNT} are usual")
    if data is None:
        if opened.origin != "run":
            raise OptionError(
                f"{opened.reference} comes without images: give a folder of images, a recipe or a run to calibrate on"
            )
        data = opened.reference
    if names_recipe(data):
        return torch.from_numpy(sample_images(load_recipe(data), count))
    return _from_folder(opened, str(data), count)


def _from_folder(opened: OpenedNetwork, folder: str, count: int) -> Tensor:
    if opened.preprocessing is None:
        raise OptionError(
            f"{opened.reference} does not say how images are preprocessed, so a folder of images is not enough: give a "
            "recipe, or preprocessed images from Python"
        )
    size = opened.needed_input_size
    prepare = read_preparation(opened.preprocessing, channels=size[0])
    inputs = open_inputs(folder, short_side=prepare.short_side)
    images = []
    for number in spread(min(count, len(inputs)), len(inputs)):
        image = prepare(inputs.image(number))
        if image.shape != size:
            raise DataError(
                f"{inputs.name(number)} has shape {image.shape} after preprocessing; the network takes {size}"
            )
        images.append(torch.from_numpy(image))
    if not images:
        raise DataError(f"{folder} has no images; give a folder of JPEG or PNG files")
    return torch.stack(images)
