"""Artifacts on disk: the engine's own file and everything measured about it, with checksums.

::

    DIR/model.onnx        or what the engine calls it
    DIR/deploy.json       forms, times, versions, the largest difference from PyTorch
    DIR/manifest.json     checksums of both
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from cruciform.deployment.deployed import Artifact
from cruciform.deployment.parity.verify import verify
from cruciform.deployment.search.build import EngineSettings, build_graph, write_engine
from cruciform.deployment.search.choose import Choice
from cruciform.deployment.search.layer_forms import composite_layers
from cruciform.deployment.targets.target import TARGETS
from cruciform.errors import DamagedError, DeployError, first_line, reraise_as
from cruciform.files import new_directory, read_json, read_manifest, refuse_own_place, write_json
from cruciform.machine.processor import emulation
from cruciform.measure.record import hardware, versions

FORMAT = 1
REPORT = "deploy.json"


def write_artifact(
    model: nn.Module, choice: Choice, setting: EngineSettings, directory: Path, *, about: Mapping[str, Any]
) -> dict[str, Any]:
    """Write a network in its chosen forms, once its outputs equal PyTorch's.

    Args:
        model: The network.
        choice: The forms.
        setting: The engine and batch size that they were chosen for.
        directory: Where to write it. An artifact of this name is replaced as a whole.
        about: What else the report contains: the network's name, its preprocessing and class names.

    Returns:
        The report.
    """
    refuse_to_overwrite(directory)
    with new_directory(directory, manifest={"format": FORMAT}) as part:
        graph = build_graph(model, choice.build.forms, setting)
        engine = write_engine(graph, choice.build.way, setting, part)
        parity = verify(model, graph, engine, choice.build, setting)
        report = {
            "format": FORMAT,
            **about,
            **setting.about,
            "rounds": setting.rounds,
            "milliseconds": 1e3 * choice.timing.best,
            "milliseconds_median": 1e3 * choice.timing.middle,
            "dense_milliseconds": 1e3 * choice.dense.best if choice.dense else None,
            "of_dense": choice.timing.best / choice.dense.best if choice.dense else None,
            "verdict": verdict(choice),
            **parity.to_dict(),
            "emulated": emulation(setting.target.precision),
            "way": choice.build.way,
            "forms": dict(choice.build.forms),
            "plans": {layer: module.plan.to_dict() for layer, module in composite_layers(model).items()},
            "layers": [asdict(layer) for layer in choice.layers],
            "tried": dict(choice.tried),
            "untried": list(choice.untried),
            "versions": versions(setting.target.packages),
            "hardware": hardware(),
        }
        write_json(part / REPORT, report)
    return report


def refuse_to_overwrite(directory: Path) -> None:
    """Raise where writing an artifact would delete anything but a complete artifact."""
    refuse_own_place(directory)
    if not directory.exists() or (directory.is_dir() and not any(directory.iterdir())):
        return
    try:
        read_report(directory)
    except DeployError as error:
        raise DeployError(
            f"{directory} exists and is not an artifact, so it is not overwritten; choose another name: {error}"
        ) from error


def open_artifact(directory: str | Path, *, threads: int = 1, trust: bool = False) -> Artifact:
    """Open an artifact, after its checksums were verified.

    Args:
        directory: The directory that ``deploy`` wrote.
        threads: Threads of the engine.
        trust: Whether to open an artifact that could do harm if it were forged, as those of PyTorch's own targets,
            which contain code. Only where you or people you trust wrote it.

    Raises:
        DeployError: It is damaged, or its format needs ``trust=True``, or its engine can't open it; when it is called,
            the engine does not take the input.
    """
    directory = Path(directory)
    report = read_report(directory)
    name, size = str(report.get("target")), report.get("input_size")
    target = TARGETS.get(name)
    if target.danger and not trust:
        raise DeployError(
            f"{directory} is made for {name}, and {target.danger}. If you or people you trust wrote it, open it with "
            "trust=True"
        )
    with reraise_as(DeployError, lambda error: f"{directory} can't be opened by its engine: {first_line(error)}"):
        engine = target.load(directory, threads=threads)

    def run(images: NDArray[Any]) -> NDArray[Any]:
        given = f"{type(images).__name__} of {getattr(images, 'shape', '?')}, {getattr(images, 'dtype', '?')}"
        with reraise_as(DeployError, lambda error: f"{directory} does not run on a {given}: {first_line(error)}"):
            # Not all engines check: some read beyond a smaller image, or take the bits of another dtype.
            if list(images.shape[1:]) != size or images.dtype != np.float32:
                raise ValueError(f"it takes float32 images of size {size}")
            return engine(np.ascontiguousarray(images))

    return Artifact(directory, report, run)


def read_report(directory: Path) -> dict[str, Any]:
    """Return the report of an artifact, after its checksums were verified."""
    try:
        made_as = read_manifest(directory).get("format")
        report = read_json(directory / REPORT)
    except (DamagedError, OSError) as error:
        raise DeployError(f"{directory} is not an artifact of 'cruciform deploy', or is damaged: {error}") from error
    if made_as != FORMAT:
        raise DeployError(f"{directory} has format {made_as!r}; this version reads {FORMAT}: deploy the network again")
    if not isinstance(report, dict):
        raise DeployError(f"{directory / REPORT} is not a report of 'cruciform deploy': it has no table")
    return report


def verdict(choice: Choice) -> str:
    """Return whether the low-rank form is faster than the dense network here, in words."""
    if not choice.layers:
        return "this network has no low-rank layers"
    if choice.dense is None:
        return "no equal dense network exists; deployed in the fastest form"
    if choice.build.is_dense:
        return "the low-rank form is not faster here; falls back to the equal dense network"
    return f"{choice.timing.best / choice.dense.best:.0%} of the equal dense network's time"
