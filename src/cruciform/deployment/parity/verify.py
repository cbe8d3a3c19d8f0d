"""What is shipped is verified: compared with PyTorch, and the comparison itself proved able to fail.

The control: the weights of the layer that counts least are replaced by random ones, and the outputs must change by far
more than what is allowed. Where they do not, or where the outputs hardly differ from one input to another, the same
build of the network is compared on rescaled weights, too.
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
"""How many times what is allowed in float32 the control must change the outputs by."""


@dataclass(frozen=True)
class Parity:
    """How an engine was seen to compute what PyTorch does.

    Attributes:
        error: The largest difference of an output, as a fraction of the range over inputs.
        batches: The batch sizes that were compared.
        refused: Batch sizes that the network or the engine does not take, and why.
        control: The smallest change of outputs, in the same measure, by random weights in one layer; None where no
            output depends on weights.
        weakest: Those weights.
        resolved: Whether outputs differ enough from one input to another.
        rescaled: Why it was compared on rescaled weights; None where it was on the network's own.
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
        """Why the comparison says little; None where it would have shown any one layer that is wrong."""
        if not self.resolved:
            return "its outputs hardly differ from one input to another"
        if self.control is not None and self.control < POWER * EXACT:
            return f"its outputs hardly depend on {self.weakest}"
        return None

    @property
    def verified(self) -> str:
        """In words, what it was verified on."""
        if self.doubt:
            return f"only in part: {self.doubt}"
        return f"on rescaled weights, because {self.rescaled}" if self.rescaled else "on its own weights"

    def to_dict(self) -> dict[str, Any]:
        """Returns what the report says."""
        return {
            "largest_error": self.error,
            "verified": self.verified,
            "verified_batches": list(self.batches),
            "refused_batches": {str(size): why for size, why in self.refused.items()},
            "control_error": self.control,
            "control_weights": self.weakest,
        }


def verify(model: nn.Module, graph: GraphModule, engine: Engine, build: Build, setting: EngineSettings) -> Parity:
    """Compares what is to be shipped with PyTorch.

    Args:
        model: The network.
        graph: What the engine's file was written from.
        engine: What runs that file.
        build: How the network was built.
        setting: Where it shall run.

    Raises:
        DeployError: They compute something else; or it can't be told, not even on rescaled weights.
    """
    name = setting.target.name
    seen = setting.target.images  # in 8 bits noise is beyond the ranges of real images
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
        # One wrong layer of many may be within what 8 bits are allowed; what they are written from is exact.
        compare(model, pytorch(graph), few, batch=batch, target=TARGETS.get("torch"), name="the rewritten graph")
    weakest, change = sabotage(model, few, found.expected, batch)
    control = None if change is None else change / found.scale
    return Parity(found.error, found.batches, found.refused, control, weakest, found.resolved)
