"""A network with its preprocessing: an artifact, or a network in PyTorch."""

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
from cruciform.deployment.deployed import Artifact
from cruciform.deployment.targets.target import Engine
from cruciform.errors import DataError, DeployError, OptionError, RecipeError, first_line, reraise_as
from cruciform.files import MANIFEST, read_bytes
from cruciform.networks.open_network import open_network
from cruciform.nn.inspect import checksum
from cruciform.prediction.request import ARTIFACT, MODEL, check_model
from cruciform.store.directory import interface_of
from cruciform.store.interface import Interface, read_interface
from cruciform.training.engine.trained_run import IMAGE_KEYS
from cruciform.training.recipe.recipe import DataTable, Transforms
from cruciform.training.tables.table import read_table


@dataclass(frozen=True)
class Preparation:
    """The preprocessing of an image.

    Attributes:
        short_side: The shorter side is resized to this length when it is decoded.
        transforms: Applied after that.
        mean: Subtracted from each channel.
        std: What each channel is divided by.
    """

    short_side: int | None
    transforms: Transforms
    mean: NDArray[np.float32]
    std: NDArray[np.float32]

    def __call__(self, image: Image) -> NDArray[np.float32]:
        """Return the preprocessed image, channels first."""
        random = KeyedGenerator(0).at(0, 0)
        for transform in self.transforms:
            image = transform(image, random)
        ready = (image.astype(np.float32) - self.mean) / self.std
        return np.ascontiguousarray(np.moveaxis(ready, -1, 0), dtype=np.float32)


@dataclass(frozen=True)
class Predictor:
    """A network and its preprocessing.

    Attributes:
        engine: Returns the logits of a batch.
        preparation: The preprocessing of an image.
        input_size: Channels and spatial size of a preprocessed image.
        identity: A checksum that changes with the network.
        classes: The names of the outputs, where they are known.
    """

    engine: Engine
    preparation: Preparation
    input_size: tuple[int, ...]
    identity: str
    classes: tuple[str, ...] | None = None

    def prepare(self, image: Image) -> NDArray[np.float32]:
        """Return a preprocessed image; raise where it has the wrong size."""
        ready = self.preparation(image)
        if ready.shape != self.input_size:
            raise DataError(f"has shape {ready.shape} after preprocessing; the network takes {self.input_size}")
        return ready


def open_predictor(model: str, *, threads: int = 1, trust: bool = False) -> Predictor:
    """Open an artifact, a run or a model directory.

    Args:
        model: Its directory.
        threads: Threads of the engine.
        trust: Whether to open an artifact that could do harm if it were forged.
    """
    path = Path(model)
    kind = check_model(path)
    if kind == ARTIFACT:
        report = read_report(path)
        _usable(read_interface(report, model), model)
        return _with_report(open_artifact(path, threads=threads, trust=trust), report, path)
    torch.set_num_threads(threads)
    if kind == MODEL:
        _usable(interface_of(path), model)  # before its weights are read
    opened = open_network(path)
    return from_network(opened.model, opened.input_size, opened.interface, name=model)


def from_artifact(artifact: Artifact) -> Predictor:
    """Return a predictor that runs an artifact."""
    return _with_report(artifact, artifact.report, artifact.path)


def _with_report(engine: Engine, report: Mapping[str, Any], path: Path) -> Predictor:
    interface = _usable(read_interface(report, str(path)), str(path))
    identity = hashlib.sha256(read_bytes(path / MANIFEST)).hexdigest()
    preparation, size = _preparation(interface, report.get("input_size"), str(path))
    return Predictor(engine, preparation, size, identity, interface.classes)


def from_network(network: torch.nn.Module, size: Sequence[int] | None, interface: Interface, *, name: str) -> Predictor:
    """Return a predictor that runs a network in PyTorch, in float32.

    Args:
        network: The network.
        size: Channels and spatial size of one preprocessed image.
        interface: Its preprocessing, and the names of its classes.
        name: The network's name, for errors.
    """
    interface = _usable(interface, name)
    preparation, read_size = _preparation(interface, size, name)
    network = network.float().eval()  # weights are stored in any precision
    return Predictor(_in_torch(network), preparation, read_size, checksum(network.state_dict()), interface.classes)


def _preparation(interface: Interface, size: Sequence[int] | None, name: str) -> tuple[Preparation, tuple[int, ...]]:
    wrong = f"the preprocessing that {name} names can't be used"
    with reraise_as(DeployError, lambda error: f"{wrong}: {first_line(error)}"):
        channels, *extents = map(int, size or ())
        preparation = read_preparation(interface.preprocessing or {}, channels=channels)
        return preparation, (channels, *extents)


def _usable(interface: Interface, name: str) -> Interface:
    if interface.preprocessing is None:
        raise DeployError(
            f"{name} does not say how images are preprocessed, so it can't predict for images: use a run, an artifact "
            "that was deployed from one, or a model directory saved with preprocessing=... and classes=..."
        )
    return interface


def _in_torch(network: torch.nn.Module) -> Engine:
    def run(images: NDArray[Any]) -> NDArray[Any]:
        with torch.no_grad():
            output = network(torch.from_numpy(images))
        logits: NDArray[Any] = (output[0] if isinstance(output, tuple) else output).float().numpy()
        return logits

    return run


def read_preparation(data: Mapping[str, Any], *, channels: int | None = None) -> Preparation:
    """Read the preprocessing that a model directory or artifact describes.

    Args:
        data: ``Interface.preprocessing``.
        channels: Channels of the images, where known.
    """
    if dict(data["data"]).get("whiten"):
        raise OptionError(
            "this network was trained on images whitened by GCN and ZCA, whose matrix belongs to its own data set; "
            "predict with a network of a recipe without data.whiten"
        )
    if odd := sorted(set(data["data"]) - set(IMAGE_KEYS)):
        raise ValueError(f"{', '.join(odd)} does not describe images; {', '.join(IMAGE_KEYS)} do")
    try:
        table = read_table(DataTable, {"kind": "folder", "path": "", **data["data"]}, "preprocessing")
        if channels is not None:
            table.check_channels(channels)
    except RecipeError as error:
        raise ValueError(str(error)) from error
    transforms: Transforms = TypeAdapter(Transforms).validate_python(data["eval_transforms"])
    return Preparation(table.short_side, transforms, _per_channel(table.mean), _per_channel(table.std))


def _per_channel(values: Sequence[float]) -> NDArray[np.float32]:
    return np.asarray(values, np.float32)
