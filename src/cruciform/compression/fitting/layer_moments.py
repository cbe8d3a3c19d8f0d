"""Sums up what layers read in the compressed network and shall give, over the same calibration inputs.

A layer shall give what it gives in the original. Where its outputs are added to a shortcut, it may instead give what
brings their sum to what it is in the original: such a layer has both as its outputs here, 2·d. The original runs once
for many layers: what is taken from it at the sampled positions is small, and is kept until it is used.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from cruciform.compression.fitting.input_patches import draw_positions, take_outputs, take_patches
from cruciform.compression.fitting.moments import Moments, MomentSums
from cruciform.compression.fitting.prefix import Prefix
from cruciform.errors import ConversionError
from cruciform.spec import ConvSpec

FEWEST = 4
"""Patches of each input of a layer, at least."""
MEMORY = 1e9
"""Bytes of samples that are held at once."""

Batches = Callable[[], Iterable[Tensor]]
"""Gives the calibration inputs, batch by batch, the same ones each time."""


class Shortcut(NamedTuple):
    """What the outputs of a layer are added into.

    Attributes:
        reader: The module that reads it, by name.
        gain: a, (d,).
    """

    reader: str
    gain: Tensor


NO_SHORTCUTS: Mapping[str, Shortcut] = {}


@dataclass(frozen=True)
class Sampling:
    """What is collected of the layers.

    Attributes:
        patches: How many, for each value of a layer's patch: moments of p values need several times p patches.
        inputs: How many calibration inputs there are.
        block: Layers whose moments are collected in one pass of the compressed network; 1 fits every layer to what
            all those before it deliver.
        parts: The inputs are dealt out to as many parts, with moments of each; fewer where there are fewer inputs.
    """

    patches: float = 8.0
    inputs: int = 1024
    block: int = 1
    parts: int = 1

    def positions(self, spec: ConvSpec) -> int:
        """Return how many patches of each input of a layer are taken, where it has as many."""
        values = spec.in_channels * prod(spec.kernel)
        return max(FEWEST, ceil(self.patches * values / self.inputs))


class _Enough(BaseException):
    """Everything that is recorded has passed; the rest of the network need not run."""


class _Recorder:
    """Runs a network, and keeps what passes through some of its layers, in the order of calls.

    Attributes:
        inputs: What each layer reads, in each call.
        outputs: What each gives.
        sums: What the reader of each shortcut reads.
    """

    def __init__(
        self, model: nn.Module, layers: Sequence[str], shortcuts: Mapping[str, Shortcut], *, inputs: bool, outputs: bool
    ) -> None:
        self._model, self._keeps_inputs, self._keeps_outputs = model, inputs, outputs
        self._shortcuts = {name: shortcut for name, shortcut in shortcuts.items() if name in layers}
        self.inputs: dict[str, list[Tensor]] = {name: [] for name in layers}
        self.outputs: dict[str, list[Tensor]] = {name: [] for name in layers}
        self.sums: dict[str, Tensor] = {}
        self._calls: int | None = None  # of all layers and readers together, known after the first batch

    def run(self, images: Tensor) -> None:
        """Record a batch. The rest of the network after the last layer runs for the first batch only."""
        for kept in (*self.inputs.values(), *self.outputs.values()):
            kept.clear()
        self.sums.clear()
        self._seen = 0
        handles: list[RemovableHandle] = []
        try:
            for name in self.inputs:
                layer = self._model.get_submodule(name)
                if self._keeps_inputs:
                    handles.append(layer.register_forward_pre_hook(self._keep_input(name), with_kwargs=True))
                handles.append(layer.register_forward_hook(self._keep_output(name)))
            handles.extend(
                self._model.get_submodule(reader).register_forward_pre_hook(self._keep_sum(reader))
                for reader in {shortcut.reader for shortcut in self._shortcuts.values()}
            )
            self._model(images)
            self._calls = self._seen
        except _Enough:
            pass
        finally:
            for handle in handles:
                handle.remove()

    @torch.no_grad()
    def over(self, batches: Batches, prefix: Prefix | None = None) -> Iterator[Tensor]:
        """Record batch after batch, and yield the inputs of each.

        Args:
            batches: The calibration inputs.
            prefix: Of the network, where it has run before.
        """
        if prefix is None:
            for images in batches():
                self.run(images)
                yield images
        else:
            for images, _ in prefix.over(next(iter(self.inputs)), self._look, batches()):
                yield images

    def _look(self, images: Tensor) -> list[Tensor]:
        """Record a batch, and return all that was recorded."""
        self.run(images)
        calls = [*self.inputs.values(), *self.outputs.values()]
        return [*(tensor for each in calls for tensor in each), *self.sums.values()]

    def _keep_input(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self.inputs[name].append((args[0] if args else kwargs["input"]).detach())
            if not self._keeps_output(name) and self._seen + 1 == self._calls:
                raise _Enough  # the last layer itself need not run

        return hook

    def _keep_output(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
            if self._keeps_output(name):
                self.outputs[name].append(output.detach())
            self._passed()

        return hook

    def _keep_sum(self, reader: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...]) -> None:
            self.sums[reader] = args[0].detach().clone()  # the reader may change it in place
            self._passed()

        return hook

    def _keeps_output(self, name: str) -> bool:
        return self._keeps_outputs or name in self._shortcuts

    def _passed(self) -> None:
        self._seen += 1
        if self._seen == self._calls:
            raise _Enough

    def sum_of(self, name: str) -> Tensor | None:
        """Return what a layer's outputs are added into, in units of these outputs; None where they are not."""
        shortcut = self._shortcuts.get(name)
        if shortcut is None:
            return None
        whole = self.sums[shortcut.reader]
        return whole / shortcut.gain.reshape(-1, *[1] * (whole.ndim - 2))


class OutputSample(NamedTuple):
    """What a layer gave in one call, and what that was added into, at sampled positions.

    Attributes:
        positions: Flat indices into the spatial size of the outputs.
        outputs: (inputs, positions, d).
        sums: The same, of what they were added into, in units of the outputs; None where there is no shortcut.
    """

    positions: Tensor
    outputs: Tensor
    sums: Tensor | None = None

    def wanted(self, y: Tensor | None, whole: Tensor | None) -> Tensor:
        """Return what a layer shall give, (inputs, positions, d or 2·d).

        Args:
            y: What it gives now, where it has a shortcut.
            whole: What that is added into now.
        """
        if self.sums is None or y is None or whole is None:
            return self.outputs
        return torch.cat([self.outputs, self.sums + _at(y - whole, self.positions)], -1)


def _at(y: Tensor, positions: Tensor) -> Tensor:
    return take_outputs(y, positions).reshape(len(y), len(positions), -1)


Samples = Mapping[str, Sequence[Sequence[OutputSample]]]
"""By layer, batch and call."""


class _Sampler:
    """Draws positions, for each layer in a sequence of its own: which other layers there are does not matter."""

    def __init__(self, layers: Mapping[str, ConvSpec], sampling: Sampling) -> None:
        self._positions = {name: sampling.positions(spec) for name, spec in layers.items()}
        self._generators = {name: torch.Generator().manual_seed(zlib.crc32(name.encode())) for name in layers}

    def sample(self, name: str, y: Tensor, whole: Tensor | None = None) -> OutputSample:
        at = draw_positions(tuple(y.shape[2:]), self._positions[name], self._generators[name])
        return OutputSample(at, _at(y, at), None if whole is None else _at(whole, at))


def sample_outputs(
    model: nn.Module,
    layers: Mapping[str, ConvSpec],
    batches: Batches,
    sampling: Sampling,
    shortcuts: Mapping[str, Shortcut] = NO_SHORTCUTS,
) -> dict[str, list[list[OutputSample]]]:
    """Run a network once, and return what some layers give at sampled positions, and what that is added into.

    Args:
        model: The trained network, in evaluation mode.
        layers: By name, their convolutions.
        batches: The calibration inputs.
        sampling: How many positions.
        shortcuts: Of those layers that have one.
    """
    recorder = _Recorder(model, list(layers), shortcuts, inputs=False, outputs=True)
    sampler = _Sampler(layers, sampling)
    samples: dict[str, list[list[OutputSample]]] = {name: [] for name in layers}
    for _ in recorder.over(batches):
        for name, calls in recorder.outputs.items():
            samples[name].append([sampler.sample(name, y, recorder.sum_of(name)) for y in calls])
    return samples


def in_memory(layers: Mapping[str, ConvSpec], sampling: Sampling, *, first: int = 1) -> dict[str, ConvSpec]:
    """Return the first layers whose samples fit into memory together.

    Args:
        layers: In the order in which they are needed.
        sampling: How many positions.
        first: So many in any case.
    """
    held, taken = 0.0, {}
    for number, (name, spec) in enumerate(layers.items()):
        held += 4.0 * sampling.inputs * sampling.positions(spec) * spec.out_channels
        if number >= first and held > MEMORY:
            break
        taken[name] = spec
    return taken


def collect_moments(
    model: nn.Module,
    layers: Mapping[str, ConvSpec],
    batches: Batches,
    sampling: Sampling,
    *,
    samples: Samples | None = None,
    shortcuts: Mapping[str, Shortcut] = NO_SHORTCUTS,
    prefix: Prefix | None = None,
) -> dict[str, list[Moments]]:
    """Return the moments of some layers: of what they read in a network, and of what they shall give.

    Args:
        model: The network, in evaluation mode; layers may be replaced in it, under the same names.
        layers: By name, the convolution that each was in the original.
        batches: The calibration inputs.
        sampling: How many patches.
        samples: What they gave in the original; None: what they give in this network.
        shortcuts: As for the samples; these layers have 2·d outputs.
        prefix: Of the network, which has run before; the layers are in the order in which they run.
    """
    parts = min(sampling.parts, sampling.inputs)
    sums = {
        name: [
            MomentSums(spec.in_channels * prod(spec.kernel), spec.out_channels * (2 if name in shortcuts else 1))
            for _ in range(parts)
        ]
        for name, spec in layers.items()
    }
    sampler = _Sampler(layers, sampling)
    recorder = _Recorder(model, list(layers), shortcuts, inputs=True, outputs=samples is None)
    dealt = 0
    for number, images in enumerate(recorder.over(batches, prefix)):
        for name, spec in layers.items():
            given = recorder.inputs[name]
            if samples is None:
                wanted: Sequence[OutputSample] = [sampler.sample(name, y) for y in recorder.outputs[name]]
            else:
                wanted = samples[name][number]
            now, whole = next(iter(recorder.outputs[name]), None), recorder.sum_of(name)
            if len(wanted) != len(given):
                raise ConversionError(
                    f"{name} ran {len(wanted)} times in the original network and {len(given)} times in the compressed "
                    "one; its outputs can't be compared"
                )
            for x, sample in zip(given, wanted, strict=True):
                y = sample.wanted(now, whole)
                for part, total in enumerate(sums[name]):
                    own = slice((part - dealt) % parts, None, parts)
                    if len(x[own]):  # a batch may be smaller than there are parts
                        total.add(take_patches(x[own], spec, sample.positions), y[own].flatten(0, 1))
        dealt += len(images)
    return {name: [total.moments() for total in totals] for name, totals in sums.items()}
