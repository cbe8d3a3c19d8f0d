"""Build a network for an engine: the form of each layer, and how it is exported."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn
from torch.fx import GraphModule

from cruciform.deployment.search.layer_forms import Form, build_form
from cruciform.deployment.targets.target import Engine, Target
from cruciform.errors import DeployError, OptionError, first_line, reraise_as
from cruciform.nn.strided_convolutions import for_other_engines

PLAIN = "plain"
"""The default way in which a target exports a network."""


RANGED = 32
"""Noise images that an int8 engine is calibrated on, where only its time matters."""


@dataclass(frozen=True)
class EngineSettings:
    """Where and how a network is timed.

    Attributes:
        target: The engine.
        input_size: Channels and spatial size of one image.
        batch: The batch size.
        threads: Threads of the engine.
        rounds: Timing rounds of the final comparison; half as many during the search.
        search_seconds: Time limit of the search; the final comparison with the dense network comes after it.
    """

    target: Target
    input_size: tuple[int, ...]
    batch: int = 1
    threads: int = 1
    rounds: int = 7
    search_seconds: float = 120.0

    def __post_init__(self) -> None:
        for name, value in (("batch", self.batch), ("threads", self.threads), ("rounds", self.rounds)):
            if value < 1:
                raise OptionError(f"{name} must be 1 or more, not {value}")

    @property
    def about(self) -> dict[str, Any]:
        """What a report says of them, as plain data."""
        return {
            "target": self.target.name,
            "batch": self.batch,
            "threads": self.threads,
            "input_size": list(self.input_size),
        }

    def ways(self) -> dict[str, Target]:
        """Return all ways to export for the engine, by name."""
        return {PLAIN: self.target, **self.target.ways(self.batch, self.input_size)}

    def for_times(self, **changes: Any) -> "EngineSettings":
        """Return changed settings for timing only: an int8 engine is calibrated on noise."""
        made = replace(self, **changes)
        if not made.target.needs_images:
            return made
        return replace(made, target=made.target.with_images(noise(RANGED, made.input_size)))


@dataclass(frozen=True)
class Build:
    """How a network is built; all builds of a network are equal functions.

    Attributes:
        forms: The form of every low-rank layer.
        way: How the target exports it.
    """

    forms: Mapping[str, Form]
    way: str = PLAIN

    @property
    def is_dense(self) -> bool:
        """Whether every layer is dense."""
        return all(form == "dense" for form in self.forms.values())


def build_engine(model: nn.Module, build: Build, setting: EngineSettings, folder: Path) -> Engine:
    """Export a network into a folder and return the engine that runs it."""
    return write_engine(build_graph(model, build.forms, setting), build.way, setting, folder)


def build_graph(model: nn.Module, forms: Mapping[str, Form], setting: EngineSettings) -> GraphModule:
    """Return the graph of a network with its layers in some forms."""
    # A graph that is traced with batch size 1 is fixed to it.
    with _unable("can't be exported"), nullcontext() if setting.target.computes_by_torch else for_other_engines():
        return build_form(model, forms, setting.input_size, batch=max(2, setting.batch))


def write_engine(graph: GraphModule, way: str, setting: EngineSettings, folder: Path) -> Engine:
    """Export a graph in one of the target's ways and return the engine that runs it."""
    with _unable("can't be converted for this engine"):
        setting.ways()[way].write(graph, setting.input_size, folder, batch=setting.batch)
        return setting.target.load(folder, threads=setting.threads)


def _unable(what: str) -> AbstractContextManager[None]:
    return reraise_as(DeployError, lambda error: f"this network {what}: {type(error).__name__}: {first_line(error)}")


def noise(batch: int, size: tuple[int, ...], *, seed: int = 0) -> NDArray[Any]:
    """Return noise images: engines take the same time for them as for real ones."""
    images: NDArray[Any] = torch.randn(batch, *size, generator=torch.Generator().manual_seed(seed)).numpy()
    return images
