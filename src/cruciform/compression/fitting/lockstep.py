"""Runs the original and the compressed network on the same inputs, and sums up what some layers read and must give."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from cruciform.compression.fitting.input_patches import draw_positions, take_outputs, take_patches
from cruciform.compression.fitting.moments import Moments, MomentSums
from cruciform.errors import ConversionError
from cruciform.spec import ConvSpec

FEWEST = 4
"""Patches of each input of a layer, at least."""

Batches = Callable[[], Iterable[Tensor]]
"""Gives the calibration inputs, batch by batch, the same ones each time."""


@dataclass(frozen=True)
class Sampling:
    """What is collected of the layers.

    Attributes:
        patches: How many, for each value of a layer's patch: moments of p values need several times p patches.
        inputs: How many calibration inputs there are.
        block: Layers whose moments are collected in one pass of both networks; 1 fits every layer to what all those
            before it deliver.
    """

    patches: float = 8.0
    inputs: int = 1024
    block: int = 1

    def positions(self, spec: ConvSpec) -> int:
        """Return how many patches of each input of a layer are taken, where it has as many."""
        values = spec.in_channels * prod(spec.kernel)
        return max(FEWEST, ceil(self.patches * values / self.inputs))


class _Enough(BaseException):
    """Everything that is recorded has passed; the rest of the network need not run."""


class _Recorder:
    """Runs a network, and keeps what passes through some of its layers, in the order of calls."""

    def __init__(self, model: nn.Module, layers: Sequence[str], *, inputs: bool, outputs: bool) -> None:
        self._model, self._keeps_inputs, self._keeps_outputs = model, inputs, outputs
        self.inputs: dict[str, list[Tensor]] = {name: [] for name in layers}
        self.outputs: dict[str, list[Tensor]] = {name: [] for name in layers}
        self._calls: int | None = None  # of all layers together, known after the first batch

    def run(self, images: Tensor) -> None:
        """Record a batch. The rest of the network after the last layer runs for the first batch only."""
        for kept in (*self.inputs.values(), *self.outputs.values()):
            kept.clear()
        self._seen = 0
        handles: list[RemovableHandle] = []
        try:
            for name in self.inputs:
                layer = self._model.get_submodule(name)
                if self._keeps_inputs:
                    handles.append(layer.register_forward_pre_hook(self._keep_input(name), with_kwargs=True))
                handles.append(layer.register_forward_hook(self._keep_output(name)))
            self._model(images)
            self._calls = self._seen
        except _Enough:
            pass
        finally:
            for handle in handles:
                handle.remove()

    def _keep_input(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self.inputs[name].append((args[0] if args else kwargs["input"]).detach())
            if not self._keeps_outputs and self._seen + 1 == self._calls:
                raise _Enough  # the last layer itself need not run

        return hook

    def _keep_output(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
            self._seen += 1
            if self._keeps_outputs:
                self.outputs[name].append(output.detach())
                if self._seen == self._calls:
                    raise _Enough

        return hook


def collect_moments(
    original: nn.Module,
    compressed: nn.Module,
    layers: dict[str, ConvSpec],
    batches: Batches,
    sampling: Sampling,
    *,
    seed: int = 0,
) -> dict[str, Moments]:
    """Return the moments of some layers: their inputs in the compressed network, their outputs in the original.

    Args:
        original: The trained network, in evaluation mode.
        compressed: The same with some layers replaced, under the same names; in evaluation mode.
        layers: By name, the convolution that each was in the original.
        batches: The calibration inputs.
        sampling: How many patches.
        seed: Of the positions.
    """
    generator = torch.Generator().manual_seed(seed)
    sums = {name: MomentSums(spec.in_channels * prod(spec.kernel), spec.out_channels) for name, spec in layers.items()}
    names, same = list(layers), compressed is original
    target = _Recorder(original, names, inputs=same, outputs=True)
    source = target if same else _Recorder(compressed, names, inputs=True, outputs=False)
    with torch.no_grad():
        for images in batches():
            target.run(images)
            if not same:
                source.run(images)
            wanted, given = target.outputs, source.inputs
            for name, spec in layers.items():
                if len(wanted[name]) != len(given[name]):
                    raise ConversionError(
                        f"{name} ran {len(wanted[name])} times in the original network and {len(given[name])} times in "
                        "the compressed one; its outputs can't be compared"
                    )
                for x, y in zip(given[name], wanted[name], strict=True):
                    at = draw_positions(tuple(y.shape[2:]), sampling.positions(spec), generator)
                    sums[name].add(take_patches(x, spec, at), take_outputs(y, at))
    return {name: total.moments() for name, total in sums.items()}
