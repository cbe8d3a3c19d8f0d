"""Where the outputs of a layer are added to what travels past it: the shortcuts of residual networks.

Symbols: ``y`` the outputs of a layer, ``z = a ⊙ y + s`` the tensor that they become part of, ``a`` a gain of each
channel, ``s`` what comes along the shortcut. A layer that is fitted to y alone leaves the errors of s as they are, and
they add up from block to block. Fitted to ``y + (z − ẑ) / a``, it corrects what it can foresee of them.

Joins are found by trying: a small change of y changes the input of a later module in proportion, each channel by its
gain, and nowhere else. So they are found however the network is written, wherever a module reads them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from cruciform.compression.fitting.layer_moments import Batches, Shortcut

CHANGE = 0.1
"""Of the root mean square of the outputs: what they are changed by."""
PROPORTIONAL = 1e-3
"""A change is in proportion where the rest is at most this fraction of it."""
TRIED = 1
"""Calibration inputs."""


@torch.no_grad()
def find_shortcuts(model: nn.Module, layers: Sequence[str], batches: Batches) -> dict[str, Shortcut]:
    """Return the shortcuts of those layers that have one, the last one of each.

    Args:
        model: The trained network, in evaluation mode.
        layers: Their names.
        batches: The calibration inputs.
    """
    images = next(iter(batches()))[:TRIED]
    recorder = _Inputs(model)
    before = recorder.run(images)
    found: dict[str, Shortcut] = {}
    generator = torch.Generator().manual_seed(0)
    for name in layers:
        if recorder.calls.get(name) != 1:
            continue  # of several calls it is not known which one is added to what
        change = _Change(generator)
        handle = model.get_submodule(name).register_forward_hook(change)
        try:
            after = recorder.run(images)
        finally:
            handle.remove()
        if change.added is not None and change.outputs is not None:
            shortcut = _last_shortcut(before, after, change.outputs, change.added)
            if shortcut:
                found[name] = shortcut
    return found


class _Change:
    """Adds noise to the outputs of a layer, and keeps both."""

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator
        self.outputs: Tensor | None = None
        self.added: Tensor | None = None

    def __call__(self, module: nn.Module, args: Any, output: Tensor) -> Tensor:
        noise = torch.randn(output.shape, generator=self._generator).to(output)
        self.outputs, self.added = output.clone(), CHANGE * output.square().mean().sqrt() * noise
        return output + self.added


class _Inputs:
    """Runs a network, and keeps the first input of every module that is called once, in the order of calls."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self.calls: dict[str, int] = {}

    def run(self, images: Tensor) -> dict[str, Tensor]:
        """Return copies of the inputs: a module may change its own in place."""
        kept: dict[str, Tensor] = {}
        self.calls = {}
        handles = [
            module.register_forward_pre_hook(self._keep(name, kept)) for name, module in self._model.named_modules()
        ]
        try:
            self._model(images)
        finally:
            for handle in handles:
                handle.remove()
        return {name: tensor for name, tensor in kept.items() if self.calls[name] == 1}

    def _keep(self, name: str, kept: dict[str, Tensor]) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...]) -> None:
            self.calls[name] = self.calls.get(name, 0) + 1
            if args and isinstance(args[0], Tensor):
                kept[name] = args[0].clone()

        return hook


def _last_shortcut(
    before: Mapping[str, Tensor], after: Mapping[str, Tensor], outputs: Tensor, added: Tensor
) -> Shortcut | None:
    """Return the last tensor that moves in proportion to a layer's outputs and holds something else besides."""
    found = None
    axes = [axis for axis in range(added.ndim) if axis != 1]
    shape = [-1 if axis == 1 else 1 for axis in range(added.ndim)]
    for name, x in before.items():
        if x.shape != added.shape:
            continue
        moved = after[name] - x
        gain = (moved * added).sum(axes) / added.square().sum(axes)
        rest = moved - gain.reshape(shape) * added
        if not bool(gain.abs().min() > 0) or rest.norm() > PROPORTIONAL * moved.norm():
            continue
        past = x - gain.reshape(shape) * outputs
        past = past - past.mean(axes, keepdim=True)
        if past.norm() > PROPORTIONAL * x.norm():
            found = Shortcut(name, gain)
    return found
