"""A target: an engine that a network is shipped to. One file each; each writes its artefact and runs it."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from numpy.typing import NDArray
from torch.fx import GraphModule

from cruciform.registry import Registry

Engine = Callable[[NDArray[Any]], NDArray[Any]]
"""Takes images, (batch, channels, …) in 32 bits, and returns the network's output."""


class Target(ABC):
    """An engine.

    Attributes:
        packages: What must be installed for it, and is written down with its artefacts.
        extra: The extra of this library that installs it.
    """

    packages: ClassVar[tuple[str, ...]]
    extra: ClassVar[str]

    @abstractmethod
    def write(self, graph: GraphModule, input_size: tuple[int, ...], folder: Path, *, batch: int) -> None:
        """Writes the artefact of a network into a folder.

        Args:
            graph: The network.
            input_size: Of one image.
            folder: Where to.
            batch: Images at a time that it is made for; more or fewer may run as well.
        """

    @abstractmethod
    def load(self, folder: Path, *, threads: int) -> Engine:
        """Returns what runs an artefact, on so many threads of this machine."""


TARGETS: Registry[Target] = Registry("target")
"""Targets by name. A target registers itself; ``cruciform.deploy.targets`` knows the files."""
