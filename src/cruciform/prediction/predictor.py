"""A trained network, ready to be asked: an artifact of 'cruciform deploy' in its engine, or another in PyTorch."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter

from cruciform.data.samples.randomness import KeyedGenerator
from cruciform.data.samples.source import Image
from cruciform.deployment.artifact import open_artifact, read_report
from cruciform.deployment.targets.target import Engine
from cruciform.errors import DataError, DeployError, OptionError, RecipeError, first_line, reraise_as
from cruciform.files import MANIFEST, read_bytes
from cruciform.prediction.request import ARTIFACT, RUN, check_model
from cruciform.store.directory import interface_of, load, saved_input_size
from cruciform.store.interface import Interface, read_interface
from cruciform.training.evaluate_run import OF_IMAGES, trained_network
from cruciform.training.recipe.recipe import DataTable, Transforms
from cruciform.training.tables.table import read_table


@dataclass(frozen=True)
class Preparation:
    """What is done to an image before a network sees it.

    Attributes:
        short_side: Length that its shorter side is brought to when it is decoded.
        transforms: What is done then.
        mean: Subtracted from each channel.
        deviation: What each channel is divided by.
    """

    short_side: int | None
    transforms: Transforms
    mean: NDArray[np.float32]
    deviation: NDArray[np.float32]

    def __call__(self, image: Image) -> NDArray[np.float32]:
        """Returns the image as the network takes it, channels first."""
        random = KeyedGenerator(0).at(0, 0)
        for transform in self.transforms:
            image = transform(image, random)
        ready = (image.astype(np.float32) - self.mean) / self.deviation
        return np.ascontiguousarray(np.moveaxis(ready, -1, 0), dtype=np.float32)


@dataclass(frozen=True)
class Predictor:
    """A network and what it needs to be asked.

    Attributes:
        engine: Images to logits.
        preparation: What is done to an image before.
        input_size: Of an image then.
        identity: Changes when the network does.
        classes: The names of the outputs, where they are known.
    """

    engine: Engine
    preparation: Preparation
    input_size: tuple[int, ...]
    identity: str
    classes: tuple[str, ...] | None = None

    def prepare(self, image: Image) -> NDArray[np.float32]:
        """Returns an image as the network takes it."""
        ready = self.preparation(image)
        if ready.shape != self.input_size:
            raise DataError(f"is {ready.shape} when it is prepared; the network takes {self.input_size}")
        return ready


def open_predictor(model: str, *, threads: int = 1, trust: bool = False) -> Predictor:
    """Opens an artifact, a run or a model directory.

    Args:
        model: Its folder.
        threads: Of the engine.
        trust: Whether an artifact may be opened that could do harm if it were forged.
    """
    path = Path(model)
    kind = check_model(path)
    if kind == ARTIFACT:
        report = read_report(path)
        interface = _usable(read_interface(report, model), model)
        identity = hashlib.sha256(read_bytes(path / MANIFEST)).hexdigest()
        engine = open_artifact(path, threads=threads, trust=trust)
        size = report.get("input_size")
    else:
        torch.set_num_threads(threads)
        if kind == RUN:
            network, size, interface, _ = trained_network(path)
        else:
            interface, size = _usable(interface_of(path), model), saved_input_size(path)
            network = load(path).float()  # weights are stored in any precision
        engine, identity = _in_torch(network.eval()), _weights_of(network)
    said = f"{model} says nothing sensible of how images are preprocessed"
    with reraise_as(DeployError, lambda error: f"{said}: {first_line(error)}"):
        channels, *extents = map(int, size or ())
        preparation = read_preparation(interface.preprocessing or {}, channels=channels)
    return Predictor(engine, preparation, (channels, *extents), identity, interface.classes)


def _usable(interface: Interface, model: str) -> Interface:
    if interface.preprocessing is None:
        raise DeployError(
            f"{model} does not say how images are preprocessed, as older versions did not; deploy it again from a run "
            "of 'cruciform train', or save it with save(..., preprocessing=..., classes=...)"
        )
    return interface


def _in_torch(network: torch.nn.Module) -> Engine:
    def ask(images: NDArray[Any]) -> NDArray[Any]:
        with torch.no_grad():
            output = network(torch.from_numpy(images))
        logits: NDArray[Any] = (output[0] if isinstance(output, tuple) else output).float().numpy()
        return logits

    return ask


def read_preparation(data: Mapping[str, Any], *, channels: int | None = None) -> Preparation:
    """Reads what a recipe says of it.

    Args:
        data: As ``Interface.preprocessing`` has it.
        channels: Of the images, where known.
    """
    if dict(data["data"]).get("whiten"):
        raise OptionError(
            "this network was trained on images whitened by GCN and ZCA, whose matrix belongs to its own data set; "
            "predict with a network of a recipe without data.whiten"
        )
    if odd := sorted(set(data["data"]) - set(OF_IMAGES)):
        raise ValueError(f"{', '.join(odd)} is nothing that is said of images; {', '.join(OF_IMAGES)} are")
    try:
        table = read_table(DataTable, {"kind": "folder", "path": "", **data["data"]}, "preprocessing")
        if channels is not None:
            table.check_channels(channels)
    except RecipeError as error:
        raise ValueError(str(error)) from error
    transforms: Transforms = TypeAdapter(Transforms).validate_python(data["prepare"])
    return Preparation(table.short_side, transforms, _per_channel(table.mean), _per_channel(table.deviation))


def _per_channel(values: Sequence[float]) -> NDArray[np.float32]:
    return np.asarray(values, np.float32)


def _weights_of(network: torch.nn.Module) -> str:
    digest = hashlib.sha256()
    for name, tensor in network.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
