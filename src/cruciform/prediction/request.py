"""A prediction that is asked for, checked before heavy packages are imported."""

from pathlib import Path
from typing import NamedTuple

from cruciform.errors import DataError, OptionError
from cruciform.store.recognize import describe_path

ARTIFACT, RUN, MODEL = "deploy.json", "recipe.json", "model.json"
"""The files by which an artifact, a run and a model directory are recognized."""
SHARDS = "manifest.json"
"""The file by which a set of shards is recognized."""


class Request(NamedTuple):
    """A prediction by paths.

    Attributes:
        model: An artifact, a run, or a model directory.
        inputs: A folder of images, or a set of shards.
        out: The file to write.
        threads: Threads of the engine, in each worker.
        trust: Whether to open an artifact that could do harm if it were forged.
    """

    model: str
    inputs: str
    out: str
    threads: int = 1
    trust: bool = False


def check_request(request: Request) -> None:
    """Raise where a prediction can't be made: a path is wrong."""
    check_model(Path(request.model))
    check_inputs(request.inputs)
    check_output_file(Path(request.out))


def check_output_file(path: Path) -> None:
    """Raise where a file can't be written because its folder does not exist."""
    if not path.absolute().parent.is_dir():
        raise OptionError(f"{path} can't be written: the folder {path.absolute().parent} does not exist")


def is_artifact(path: Path) -> bool:
    """Return whether a directory is an artifact of ``deploy``."""
    return (path / ARTIFACT).is_file()


def is_predictable(path: Path) -> bool:
    """Return whether a directory is an artifact, a run or a model directory."""
    return any((path / file).is_file() for file in (ARTIFACT, RUN, MODEL))


def check_model(path: Path) -> str:
    """Return the marker file of an artifact, run or model directory, or raise."""
    for file in (ARTIFACT, RUN, MODEL):
        if (path / file).is_file():
            return file
    raise OptionError(
        f"{describe_path(path)} Predict with an artifact of 'cruciform deploy', a run of 'cruciform train' or a "
        "model directory"
    )


def check_inputs(given: str) -> None:
    """Raise where a path is neither a folder nor a set of shards."""
    path = Path(given)
    if "://" not in given and not (path / SHARDS).is_file() and not path.is_dir():
        raise DataError(f"{describe_path(path)} Give a folder of images or a set of shards")
