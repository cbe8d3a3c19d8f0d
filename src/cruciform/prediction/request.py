"""What is asked of a network: looked at before anything is imported that reading it takes."""

from pathlib import Path
from typing import NamedTuple

from cruciform.errors import DataError, OptionError
from cruciform.store.recognize import describe_path

ARTIFACT, RUN, MODEL = "deploy.json", "recipe.json", "model.json"
"""What tells an artifact, a run and a model directory."""
SHARDS = "manifest.json"
"""What tells a set of shards."""


class Request(NamedTuple):
    """What is asked.

    Attributes:
        model: An artifact of 'cruciform deploy', a run, or a model directory.
        inputs: A folder of images, or a set of shards.
        out: The file to write.
        threads: Of the engine, in each worker.
        trust: Whether an artifact may be opened that could do harm if it were forged.
    """

    model: str
    inputs: str
    out: str
    threads: int = 1
    trust: bool = False


def check_request(request: Request) -> None:
    """Raises where what is asked can't be."""
    check_model(Path(request.model))
    check_inputs(request.inputs)
    if not Path(request.out).absolute().parent.is_dir():
        raise OptionError(f"{request.out} can't be written: there is no folder {Path(request.out).absolute().parent}")


def check_model(path: Path) -> str:
    """Returns what tells the kind of a folder, or raises where it is none that can be predicted with."""
    for file in (ARTIFACT, RUN, MODEL):
        if (path / file).is_file():
            return file
    raise OptionError(
        f"{describe_path(path)} To predict with, name an artifact of 'cruciform deploy', a run of 'cruciform train' or "
        "a model directory"
    )


def check_inputs(given: str) -> None:
    """Raises where something is neither a folder nor a set of shards."""
    path = Path(given)
    if "://" not in given and not (path / SHARDS).is_file() and not path.is_dir():
        raise DataError(f"{describe_path(path)} To predict for, name a folder of images or a set of shards")
