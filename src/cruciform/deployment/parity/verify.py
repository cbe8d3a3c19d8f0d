"""Verify an artifact: compare it with PyTorch, and prove that the comparison can fail.

The control: the least important weights are randomized, and the outputs must change by far more than the tolerance.
If they do not, or if the outputs hardly differ between inputs, the same build is also compared on rescaled weights.
"""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn
from torch.fx import GraphModule

from cruciform.deployment.parity.compare import INPUTS, check_inputs, compare, pytorch
from cruciform.deployment.parity.control import sabotage
from cruciform.deployment.parity.rescale import rescaled
from cruciform.deployment.search.build import Build, EngineSettings, build_graph, write_engine
from cruciform.deployment.targets.target import EXACT, TARGETS, Engine
from cruciform.errors import DeployError
from cruciform.measure.state_guard import in_mode

POWER = 10
"""The control must change the outputs by this multiple of the float32 tolerance."""


@dataclass(frozen=True)
class Parity:
    """The result of a verification.

    Attributes:
        error: The largest difference of an output, as a fraction of the range over inputs.
        batches: The batch sizes that were compared.
        refused: Batch sizes that the network or engine does not support, with the error.
        control: The smallest change of outputs by random weights in one layer, in the same unit; None where outputs do
            not depend on weights.
        weakest: The name of those weights.
        resolved: Whether outputs differ enough between inputs.
        rescaled: Why rescaled weights were used; None where the network's own were.
    """

    error: float
    batches: tuple[int, ...]
    refused: dict[int, str]
    control: float | None
    weakest: str | None
    resolved: bool
    rescaled: str | None = None

    @property
    def doubt(self) -> str | None:
        """Why the comparison is weak; None where it would have found any one wrong layer."""
        if not self.resolved:
            return "its outputs hardly differ from one input to another"
        if self.control is not None and self.control < POWER * EXACT:
            return f"its outputs hardly depend on {self.weakest}"
        return None

    @property
    def verified(self) -> str:
        """What it was verified on, in words."""
        if self.doubt:
            return f"only in part: {self.doubt}"
        return f"on rescaled weights, because {self.rescaled}" if self.rescaled else "on its own weights"

    def to_dict(self) -> dict[str, Any]:
        """Return the entries of the report."""
        return {
            "largest_error": self.error,
            "verified": self.verified,
            "verified_batches": list(self.batches),
            "refused_batches": {str(size): why for size, why in self.refused.items()},
            "control_error": self.control,
            "control_weights": self.weakest,
        }


def verify(model: nn.Module, graph: GraphModule, engine: Engine, build: Build, setting: EngineSettings) -> Parity:
    """Compare an artifact with PyTorch.

    Args:
        model: The network.
        graph: The graph that the engine's file was written from.
        engine: The engine.
        build: How the network was built.
        setting: The engine and batch size.

    Raises:
        DeployError: The outputs differ, or the comparison shows nothing even on rescaled weights.
    """
    name = setting.target.name
    seen = setting.target.images  # in int8 noise exceeds the calibrated ranges
    images = check_inputs(max(INPUTS, setting.batch + 1), setting.input_size) if seen is None else seen
    with in_mode(model, training=False):
        own = _examine(model, graph, engine, images, setting, name)
    if own.doubt is None:
        return own
    try:
        other = rescaled(model, torch.from_numpy(images[: setting.batch if setting.batch > 1 else INPUTS]))
    except DeployError as error:
        if own.resolved:
            return own
        raise DeployError(f"{name} could not be verified: {own.doubt}, and {error}") from error
    with tempfile.TemporaryDirectory() as folder:
        again = build_graph(other, build.forms, setting)
        runs = write_engine(again, build.way, setting, Path(folder))
        found = replace(_examine(other, again, runs, images, setting, name), rescaled=own.doubt)
    if found.resolved and (found.doubt is None or not own.resolved):
        return found
    if own.resolved:
        return own
    raise DeployError(
        f"{name} could not be verified: {own.doubt}, even with rescaled weights; deploy a trained network"
    )


def _examine(
    model: nn.Module, graph: GraphModule, engine: Engine, images: NDArray[Any], setting: EngineSettings, name: str
) -> Parity:
    target, batch = setting.target, setting.batch
    found = compare(model, engine, images, batch=batch, target=target, name=name)
    few = images[: max(INPUTS, batch + 1)]
    if target.tolerance > EXACT:
        # One wrong layer of many may be within the int8 tolerance; the graph that it is quantized from must be exact.
        compare(model, pytorch(graph), few, batch=batch, target=TARGETS.get("torch"), name="the rewritten graph")
    weakest, change = sabotage(model, few, found.expected, batch)
    control = None if change is None else change / found.scale
    return Parity(found.error, found.batches, found.refused, control, weakest, found.resolved)
