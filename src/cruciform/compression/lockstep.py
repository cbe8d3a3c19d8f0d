"""Runs the original and the compressed network on the same inputs, and sums up what some layers read and must give."""

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from cruciform.compression.input_patches import draw_positions, take_outputs, take_patches
from cruciform.compression.moments import Moments, MomentSums
from cruciform.errors import ConversionError
from cruciform.spec import ConvSpec

POSITIONS = 32
"""Patches that are taken of each input of a layer, where it has as many."""

Batches = Callable[[], Iterable[Tensor]]
"""Gives the calibration inputs, batch by batch, the same ones each time."""


class _Recorder:
    """Keeps what passes through some layers of one network, in the order of calls."""

    def __init__(self, model: nn.Module, layers: Sequence[str], *, inputs: bool) -> None:
        self.kept: dict[str, list[Tensor]] = {name: [] for name in layers}
        self._model, self._inputs = model, inputs
        self._handles: list[RemovableHandle] = []

    def __enter__(self) -> "_Recorder":
        for name in self.kept:
            layer = self._model.get_submodule(name)
            if self._inputs:
                self._handles.append(layer.register_forward_pre_hook(self._keep_input(name), with_kwargs=True))
            else:
                self._handles.append(layer.register_forward_hook(self._keep_output(name)))
        return self

    def __exit__(self, *error: object) -> None:
        for handle in self._handles:
            handle.remove()

    def run(self, images: Tensor) -> dict[str, list[Tensor]]:
        """Return what each layer got or gave for a batch."""
        for kept in self.kept.values():
            kept.clear()
        self._model(images)
        return self.kept

    def _keep_input(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self.kept[name].append((args[0] if args else kwargs["input"]).detach())

        return hook

    def _keep_output(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
            self.kept[name].append(output.detach())

        return hook


def collect_moments(
    original: nn.Module,
    compressed: nn.Module,
    layers: dict[str, ConvSpec],
    batches: Batches,
    *,
    positions: int = POSITIONS,
    seed: int = 0,
) -> dict[str, Moments]:
    """Return the moments of some layers: their inputs in the compressed network, their outputs in the original.

    Args:
        original: The trained network, in evaluation mode.
        compressed: The same with some layers replaced, under the same names; in evaluation mode.
        layers: By name, the convolution that each was in the original.
        batches: The calibration inputs.
        positions: Patches of each input of a layer.
        seed: Of the positions.
    """
    generator = torch.Generator().manual_seed(seed)
    sums = {name: MomentSums(spec.in_channels * prod(spec.kernel), spec.out_channels) for name, spec in layers.items()}
    with (
        torch.no_grad(),
        _Recorder(original, list(layers), inputs=False) as outputs,
        _Recorder(compressed, list(layers), inputs=True) as inputs,
    ):
        for images in batches():
            wanted, given = outputs.run(images), inputs.run(images)
            for name, spec in layers.items():
                if len(wanted[name]) != len(given[name]):
                    raise ConversionError(
                        f"{name} ran {len(wanted[name])} times in the original network and {len(given[name])} times in "
                        "the compressed one; its outputs can't be compared"
                    )
                for x, y in zip(given[name], wanted[name], strict=True):
                    at = draw_positions(tuple(y.shape[2:]), positions, generator)
                    sums[name].add(take_patches(x, spec, at), take_outputs(y, at))
    return {name: total.moments() for name, total in sums.items()}
