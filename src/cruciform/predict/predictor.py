"""A trained network, ready to be asked: an artefact of 'cruciform deploy' in its engine, or a run in PyTorch."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter

from cruciform.data.randomness import KeyedGenerator
from cruciform.data.source import Image
from cruciform.deploy.package import REPORT, open_artefact, read_report
from cruciform.deploy.target import Engine
from cruciform.errors import DataError, DeployError, OptionError, first_line, told_as
from cruciform.files import MANIFEST, read_bytes
from cruciform.train.judge import trained_network
from cruciform.train.recipe import Transforms
from cruciform.train.run import Run


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
    """

    engine: Engine
    preparation: Preparation
    input_size: tuple[int, ...]
    identity: str

    def prepare(self, image: Image) -> NDArray[np.float32]:
        """Returns an image as the network takes it."""
        ready = self.preparation(image)
        if ready.shape != self.input_size:
            raise DataError(f"is {ready.shape} when it is prepared; the network takes {self.input_size}")
        return ready


def open_predictor(model: str, *, threads: int = 1, trust: bool = False) -> Predictor:
    """Opens an artefact or a run.

    Args:
        model: Its folder.
        threads: Of the engine.
        trust: Whether an artefact may be opened that could do harm if it were forged.
    """
    path = Path(model)
    if (path / REPORT).is_file():
        report = read_report(path)
        if not report.get("preparation"):
            raise DeployError(
                f"{model} does not say what is done to an image before; deploy it from a run of 'cruciform train'"
            )
        identity = hashlib.sha256(read_bytes(path / MANIFEST)).hexdigest()
        engine = open_artefact(path, threads=threads, trust=trust)
        said = f"{model} says nothing sensible of what is done to an image before"
        with told_as(DeployError, lambda error: f"{said}: {first_line(error)}"):
            preparation, size = read_preparation(report["preparation"]), tuple(report["input_size"])
        return Predictor(engine, preparation, size, identity)
    if Run(path).exists:
        torch.set_num_threads(threads)
        trained = trained_network(path)
        network = trained.model.eval()

        def ask(images: NDArray[Any]) -> NDArray[Any]:
            with torch.no_grad():
                output = network(torch.from_numpy(images))
            logits: NDArray[Any] = (output[0] if isinstance(output, tuple) else output).float().numpy()
            return logits

        return Predictor(ask, read_preparation(trained.preparation), trained.input_size, _weights_of(network))
    raise OptionError(f"{model} is neither an artefact of 'cruciform deploy' nor a run of 'cruciform train'")


def read_preparation(data: Mapping[str, Any]) -> Preparation:
    """Reads what a recipe says of it."""
    table = data["data"]
    if table.get("whiten"):
        raise OptionError(
            "this network was trained on images whitened by GCN and ZCA, whose matrix belongs to its own data set; "
            "predict with a network of a recipe without data.whiten"
        )
    transforms: Transforms = TypeAdapter(Transforms).validate_python(data["prepare"])
    return Preparation(
        table.get("short_side"), transforms, _per_channel(table["mean"]), _per_channel(table["deviation"])
    )


def _per_channel(values: Sequence[float]) -> NDArray[np.float32]:
    return np.asarray(values, np.float32)


def _weights_of(network: torch.nn.Module) -> str:
    digest = hashlib.sha256()
    for name, tensor in network.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
