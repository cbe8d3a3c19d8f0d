"""``cruciform.deploy``: the fastest equal form of a network in an engine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import nn

    from cruciform.deployment.deployed import Artifact
    from cruciform.deployment.targets.target import Target
    from cruciform.networks.open_network import OpenedNetwork

CALIBRATION_IMAGES = 300  # of a run, for targets that need some


@dataclass(frozen=True)
class DeployOptions:
    """How ``deploy`` measures.

    Attributes:
        threads: Threads of the engine. One: CPU time is measured; more: wall-clock time.
        rounds: How often candidates are timed, interleaved; the shortest time counts.
        search_seconds: Time limit of the search. The comparison with the dense network, writing and the check against
            PyTorch come after it.
        images: Preprocessed images ``(n, channels, …)`` to calibrate int8 targets with. Left out: those of the run.
        on_progress: Called with what is being measured.
    """

    threads: int = 1
    rounds: int = 7
    search_seconds: float = 120.0
    images: "NDArray[Any] | None" = field(default=None, repr=False)
    on_progress: Callable[[str], None] | None = None


def deploy(
    model: "nn.Module | OpenedNetwork | str | Path",
    output: str | Path | None = None,
    *,
    target: str = "onnxruntime",
    batch: int = 1,
    weights: str | Path | None = None,
    input_size: Sequence[int] | None = None,
    options: DeployOptions | None = None,
) -> "Artifact":
    """Time every equal form of every layer in an engine; write the fastest network.

    The result is never slower than the equal dense network in the same engine, and its outputs were compared with
    PyTorch's.

    Args:
        model: An ``nn.Module``, a reference (``vgg11_gmp_lr``, ``timm:resnet18``, ``package.module:function``, a run,
            a model directory), or what ``open_network`` returns.
        output: The directory to write; an artifact of this name is replaced. Left out: a temporary directory that is
            removed with the result.
        target: The engine, by its name in ``cruciform.deployment.targets``.
        batch: The batch size to optimize for; others run as well.
        weights: A .safetensors file with trained weights, for a network that is built by name or function.
        input_size: Channels and spatial size of one image; left out: the network's usual one.
        options: Threads, rounds, time limit, calibration images, progress.

    Raises:
        DeployError: The engine can't run the network, or its outputs differ from PyTorch's.
    """
    from cruciform.deployment.artifact import refuse_to_overwrite, write_artifact
    from cruciform.deployment.deployed import TemporaryFolder
    from cruciform.deployment.search.build import EngineSettings
    from cruciform.deployment.search.choose import choose_build
    from cruciform.deployment.targets.target import TARGETS
    from cruciform.networks.open_network import resolve_network

    options = options or DeployOptions()
    on_progress = options.on_progress or (lambda what: None)
    if output is not None:
        refuse_to_overwrite(Path(output))  # before minutes of measuring
    engine = TARGETS.get(target)
    opened = resolve_network(model, weights=weights, input_size=None if input_size is None else tuple(input_size))
    if engine.needs_images:
        engine = _calibrated(engine, opened, options)
    setting = EngineSettings(
        engine,
        opened.needed_input_size,
        batch=batch,
        threads=options.threads,
        rounds=options.rounds,
        search_seconds=options.search_seconds,
    )
    choice = choose_build(opened.model, setting, on_progress=on_progress)
    on_progress("the difference from PyTorch")
    folder = TemporaryFolder() if output is None else None
    path = folder.path / "artifact" if folder else Path(str(output))
    about = {"network": opened.reference, **opened.interface._asdict()}
    write_artifact(opened.model, choice, setting, path, about=about)
    return replace(open_artifact(path, threads=options.threads, trust=True), folder=folder)


def open_artifact(path: str | Path, *, threads: int = 1, trust: bool = False) -> "Artifact":
    """Open a deployed network, after its checksums were verified.

    Args:
        path: The directory that ``deploy`` wrote.
        threads: Threads of the engine.
        trust: Whether to open an artifact that could do harm if it were forged, as those of PyTorch's own targets,
            which contain code. Only where you or people you trust wrote it.

    Raises:
        DeployError: It is damaged, or its format needs ``trust=True``, or its engine can't open it.
    """
    from cruciform.deployment.artifact import open_artifact as open_directory

    return open_directory(path, threads=threads, trust=trust)


def _calibrated(engine: "Target", opened: "OpenedNetwork", options: DeployOptions) -> "Target":
    """Return a target with the calibration images of the options or the run."""
    from cruciform.errors import OptionError

    if options.images is not None:
        return engine.with_images(options.images)
    if opened.origin != "run":
        raise OptionError(
            f"{engine.name} is calibrated on images, and {opened.reference} has none; deploy a run of 'cruciform "
            "train', or give preprocessed images with DeployOptions(images=...)"
        )
    from cruciform.training.engine.sample_images import sample_images

    return engine.with_images(sample_images(Path(opened.reference), CALIBRATION_IMAGES))
