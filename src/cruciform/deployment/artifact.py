"""What is shipped: a directory with the engine's own file, and all that is known about it, checked by sums.

::

    DIR/model.onnx        or what the engine calls it
    DIR/deploy.json       the forms, their times, the versions, how closely it was seen to compute what PyTorch does
    DIR/manifest.json     checksums of both
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from cruciform.deployment.parity.verify import verify
from cruciform.deployment.search.build import EngineSettings, build_graph, write_engine
from cruciform.deployment.search.choose import Choice
from cruciform.deployment.search.layer_forms import composite_layers
from cruciform.deployment.targets.target import TARGETS, Engine
from cruciform.errors import DamagedError, DeployError, first_line, reraise_as
from cruciform.files import new_directory, read_json, read_manifest, refuse_own_place, write_json
from cruciform.machine.processor import emulation
from cruciform.measure.record import hardware, versions

FORMAT = 1
REPORT = "deploy.json"


def ship(
    model: nn.Module, choice: Choice, setting: EngineSettings, directory: Path, *, target: str, about: Mapping[str, Any]
) -> dict[str, Any]:
    """Writes the artifact of a network in the forms that were chosen, after it has computed what PyTorch does.

    Args:
        model: The network.
        choice: The forms.
        setting: What they were chosen for.
        directory: Where to; replaced as a whole where it is an artifact of ours already.
        target: The name of the engine.
        about: What else the report shall say: the network's name, what is done to an image before.

    Returns:
        The report.
    """
    refuse_to_overwrite(directory)
    with new_directory(directory, manifest={"format": FORMAT}) as part:
        graph = build_graph(model, choice.build.forms, setting)
        engine = write_engine(graph, choice.build.way, setting, part)
        parity = verify(model, graph, engine, choice.build, setting, name=target)
        report = {
            "format": FORMAT,
            **about,
            "target": target,
            "input_size": list(setting.input_size),
            "batch": setting.batch,
            "threads": setting.threads,
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
    """Raises where shipping would delete anything but an artifact, whole as it was written."""
    refuse_own_place(directory)
    if not directory.exists() or (directory.is_dir() and not any(directory.iterdir())):
        return
    try:
        read_report(directory)
    except DeployError as error:
        raise DeployError(
            f"{directory} exists, and would be deleted; choose another name, or move it: {error}"
        ) from error


def open_artifact(directory: str | Path, *, threads: int = 1, trust: bool = False) -> Engine:
    """Returns what runs an artifact, where it is what was written.

    Args:
        directory: What ``ship`` wrote.
        threads: Of the engine.
        trust: Whether to open one that could do harm if it were forged, as code of PyTorch's own targets; only where
            you or people you trust wrote it.

    Raises:
        DeployError: It is damaged, is dangerous and has not your trust, or its engine can't open it; later, where the
            engine does not take what it is given.
    """
    directory = Path(directory)
    report = read_report(directory)
    name, size = str(report.get("target")), report.get("input_size")
    target = TARGETS.get(name)
    if target.danger and not trust:
        raise DeployError(
            f"{directory} is made for {name}, and {target.danger}. Where you or people you trust wrote it, add "
            "--trust (trust=True)"
        )
    with reraise_as(DeployError, lambda error: f"{directory} can't be opened by its engine: {first_line(error)}"):
        engine = target.load(directory, threads=threads)

    def ask(images: NDArray[Any]) -> NDArray[Any]:
        given = f"{type(images).__name__} of {getattr(images, 'shape', '?')}, {getattr(images, 'dtype', '?')}"
        with reraise_as(DeployError, lambda error: f"{directory} does not run on a {given}: {first_line(error)}"):
            # Not all engines look: some read what lies behind a smaller image, or the bits of other numbers.
            if list(images.shape[1:]) != size or images.dtype != np.float32:
                raise ValueError(f"it is made for images of {size}, float32")
            return engine(np.ascontiguousarray(images))

    return ask


def read_report(directory: Path) -> dict[str, Any]:
    """Returns what is known about an artifact, where it is what was written."""
    try:
        made_as = read_manifest(directory).get("format")
        report = read_json(directory / REPORT)
    except (DamagedError, OSError) as error:
        raise DeployError(f"{directory} is not what 'cruciform deploy' wrote: {error}") from error
    if made_as != FORMAT:
        raise DeployError(f"{directory} has format {made_as!r}; this version reads {FORMAT}: deploy it anew")
    if not isinstance(report, dict):
        raise DeployError(f"{directory / REPORT} is not what 'cruciform deploy' wrote: it holds no table")
    return report


def verdict(choice: Choice) -> str:
    """Returns in words whether basis filters pay here."""
    if not choice.layers:
        return "this network has no layers of basis filters"
    if choice.dense is None:
        return "no equal dense network exists; shipped in the fastest form"
    if choice.build.is_dense:
        return "basis filters do not pay here; shipped as the equal dense network"
    return f"{choice.timing.best / choice.dense.best:.0%} of the equal dense network's time"
