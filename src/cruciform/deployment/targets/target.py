"""A target: an engine that a network is shipped to. One file each; each writes its artifact and runs it."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from numpy.typing import NDArray
from torch.fx import GraphModule

from cruciform.registry import Registry

Engine = Callable[[NDArray[Any]], NDArray[Any]]
"""Takes images, (batch, channels, …) in 32 bits, and returns the network's output."""

EXACT = 1e-4
"""The tolerance of what computes in float32."""
IS_CODE = "such an artifact is code: opening it runs what is written in it"


class Target(ABC):
    """An engine.

    Attributes:
        packages: What must be installed for it, and is written down with its artifacts.
        extra: The extra of this library that installs it.
        precision: What it computes in.
        tolerance: The largest difference from PyTorch in float32 that is allowed, as a fraction of the outputs' range
            over inputs.
        needs_images: Whether it must see images before it can write, to learn the ranges of numbers from them.
        images: Those that it was given.
        computes_by_torch: Whether it runs torch's own convolutions, whose defects must be computed around.
        danger: What a forged artifact could do when it is opened; such ones are opened with trust only.
    """

    packages: ClassVar[tuple[str, ...]]
    extra: ClassVar[str]
    precision: str = "f32"
    tolerance: float = EXACT
    needs_images: ClassVar[bool] = False
    images: NDArray[Any] | None = None
    computes_by_torch: ClassVar[bool] = False
    danger: ClassVar[str] = ""

    def with_images(self, images: NDArray[Any]) -> "Target":
        """Returns this target with images to learn from; one that needs none stays as it is."""
        if not self.needs_images:
            return self
        made = copy.copy(self)
        made.images = images
        return made

    def ways(self, batch: int, input_size: tuple[int, ...]) -> "Mapping[str, Target]":
        """Returns other ways to write a network for the same engine, worth measuring; this target loads them all."""
        del batch, input_size
        return {}

    @abstractmethod
    def write(self, graph: GraphModule, input_size: tuple[int, ...], folder: Path, *, batch: int) -> None:
        """Writes the artifact of a network into a folder.

        Args:
            graph: The network.
            input_size: Of one image.
            folder: Where to.
            batch: Images at a time that it is made for; more or fewer may run as well.
        """

    @abstractmethod
    def load(self, folder: Path, *, threads: int) -> Engine:
        """Returns what runs an artifact, on so many threads of this machine."""


TARGETS: Registry[Target] = Registry("target")
"""Targets by name. A target registers itself; ``cruciform.deployment.targets.registered`` knows the files."""
