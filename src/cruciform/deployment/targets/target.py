"""Deployment targets: the engines that networks are deployed to, one file each.

To add one, put a file beside this one that defines a subclass of ``Target`` and calls ``TARGETS.add(target.name,
target)``. Another package adds one by an entry point of the group ``cruciform.targets``.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from numpy.typing import NDArray
from torch.fx import GraphModule

from cruciform.registry import Registry

Engine = Callable[[NDArray[Any]], NDArray[Any]]
"""Takes a float32 batch (batch, channels, …) and returns the network's output."""

EXACT = 1e-4
"""The tolerance of what computes in float32."""
IS_CODE = "such an artifact contains code, which runs when it is opened"


class Target(ABC):
    """An inference engine: writes artifacts and runs them.

    Attributes:
        name: What users call it, as in ``deploy(model, target=name)``.
        packages: The packages that it needs; their versions are recorded with its artifacts.
        extra: The extra of this library that installs them; empty where a plugin brings them itself.
        precision: The data type of its arithmetic: f32, bf16 or int8.
        tolerance: The largest difference from PyTorch in float32 that is allowed, as a fraction of the outputs' range
            over inputs.
        needs_images: Whether it needs calibration images before it can write.
        images: The calibration images that it was given.
        computes_by_torch: Whether it runs torch's own convolutions, so that their defects need workarounds.
        danger: What a forged artifact could do when it is opened; such artifacts are opened only with ``trust=True``.
    """

    name: str
    packages: ClassVar[tuple[str, ...]]
    extra: ClassVar[str] = ""
    precision: str = "f32"
    tolerance: float = EXACT
    needs_images: ClassVar[bool] = False
    images: NDArray[Any] | None = None
    computes_by_torch: ClassVar[bool] = False
    danger: ClassVar[str] = ""

    def with_images(self, images: NDArray[Any]) -> "Target":
        """Return this target with calibration images; one that needs none is returned unchanged."""
        if not self.needs_images:
            return self
        made = copy.copy(self)
        made.images = images
        return made

    def ways(self, batch: int, input_size: tuple[int, ...]) -> "Mapping[str, Target]":
        """Return other ways to export for this engine, by name; all load the same way."""
        del batch, input_size
        return {}

    @abstractmethod
    def write(self, graph: GraphModule, input_size: tuple[int, ...], folder: Path, *, batch: int) -> None:
        """Write the artifact of a network into a folder.

        Args:
            graph: The network.
            input_size: Channels and spatial size of one image.
            folder: The folder to write into.
            batch: The batch size to optimize for; others may run as well.
        """

    @abstractmethod
    def load(self, folder: Path, *, threads: int) -> Engine:
        """Return a function that runs an artifact on this number of threads."""


TARGETS: Registry[Target] = Registry("target", package="cruciform.deployment.targets", group="cruciform.targets")
"""Targets by name: every file of this package, and the entry points of other packages."""
