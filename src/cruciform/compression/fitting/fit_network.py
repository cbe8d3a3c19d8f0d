"""Fits all layers of a compressed network to the outputs of the original, in the order in which they run.

Each layer is fitted to what the original layer computes, from what the layers before it, fitted already, deliver
(asymmetric: errors of earlier layers are corrected as far as a later one can). Where its outputs are added to what
travels past it, a layer may be fitted to their sum instead, so that errors do not add up from block to block. What is
taken, of these and of how much is corrected, brings the outputs of the network nearest to the original's.

Layers are taken in blocks: the moments of a block are collected in one pass of the compressed network, in which all
layers that are not fitted yet compute what the original's do. Passes start where the block does (``prefix``). A block
of one layer is the exact sequential fit; larger ones save passes, and trials of corrections, in networks of hundreds of
layers. The original runs once for many blocks.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import NamedTuple

import torch
from torch import Tensor, nn

from cruciform.compression.fitting.correction import Correction, find_correction
from cruciform.compression.fitting.layer_moments import (
    Batches,
    OutputSample,
    Sampling,
    collect_moments,
    in_memory,
    sample_outputs,
)
from cruciform.compression.fitting.measured_rise import Probe, output_error, replaced, take_probes
from cruciform.compression.fitting.moments import Moments
from cruciform.compression.fitting.norms import move_norms_, norm_after, shift_norm_
from cruciform.compression.fitting.output_fit import fit_outputs
from cruciform.compression.fitting.prefix import ModuleCalls, Prefix, with_forward
from cruciform.compression.fitting.shortcuts import find_shortcuts
from cruciform.errors import ConversionError
from cruciform.nn.composite import CompositeConv
from cruciform.nn.inspect import PLAIN_CONVOLUTIONS, spec_of
from cruciform.spec import ConvSpec

SHARES = (1.0, 0.5, 0.0)
"""Of the correction of earlier errors, what is tried; the first of equally good ones is taken."""
PASSES, FEWEST_PROBES, MOST_PROBES = 3, 16, 256
"""All layers try it in as many passes over the calibration inputs, each on so many inputs."""


class Pair(NamedTuple):
    """A layer that was replaced: what it is now, and the convolution that it was."""

    layer: CompositeConv
    trained: nn.Module
    spec: ConvSpec


@dataclass(frozen=True)
class FittedLayer:
    """How well a layer reproduces the original's outputs.

    Attributes:
        name: Of the layer.
        plan: What it is now.
        relative_error: E‖y − ŷ‖² / E‖y − E[y]‖² over the calibration inputs, with the inputs of the compressed network.
        weight_fit_error: The same for a fit to the weights alone.
    """

    name: str
    plan: str
    relative_error: float
    weight_fit_error: float


@dataclass(frozen=True)
class NetworkFit:
    """The layers of a network in the order of their fit.

    Attributes:
        layers: Those that were fitted.
        skipped: By name, why a replaced layer was not.
        norms: Batch norms whose statistics were moved.
    """

    layers: tuple[FittedLayer, ...]
    skipped: dict[str, str]
    norms: int


def fit_network_(
    compressed: nn.Module,
    original: nn.Module,
    batches: Batches,
    *,
    sampling: Sampling | None = None,
    metrics: Mapping[str, Tensor] | None = None,
    done: Sequence[FittedLayer] = (),
    on_progress: Callable[[list[FittedLayer], int], None] = lambda fitted, total: None,
) -> NetworkFit:
    """Fit the replaced layers of a network to the original's outputs, in place, and move its batch norms.

    Args:
        compressed: The network with ``CompositeConv`` layers, as ``convert`` makes it.
        original: The trained network that it was converted from.
        batches: Gives the calibration inputs each time it is called; no labels are needed.
        sampling: What is collected of the layers; left out: one layer at a time.
        metrics: How much errors of the outputs of layers count (``sensitivity``); left out: all alike.
        done: Layers that were fitted before, by an earlier call that was stopped.
        on_progress: Called with the layers that are fitted, and how many there are in all.
    """
    sampling = sampling or Sampling(inputs=sum(len(images) for images in batches()))
    original.eval()
    compressed.eval()
    pairs, skipped = _pairs(compressed, original)
    image = next(iter(batches()))[:1]
    order = [name for name in ModuleCalls(original, image).order if name in pairs]
    skipped |= {name: "no calibration input reaches it" for name in pairs if name not in order}
    fitted = [layer for layer in done if layer.name in order]
    left = [name for name in order if name not in {layer.name for layer in fitted}]
    shortcuts = find_shortcuts(original, order, batches)
    tries = (bool(shortcuts) + len(SHARES)) * max(1, ceil(len(order) / sampling.block))
    probes = take_probes(original, batches, max(FEWEST_PROBES, min(MOST_PROBES, PASSES * sampling.inputs // tries)))
    prefix, prefix_of_probes = Prefix(compressed, image), Prefix(compressed, image)
    halved = replace(sampling, parts=2)
    samples: dict[str, list[list[OutputSample]]] = {}
    for first in range(0, len(left), sampling.block):
        names = left[first : first + sampling.block]
        if not samples.keys() >= {*names}:
            ahead = {name: pairs[name].spec for name in left[first:]}
            samples = sample_outputs(
                original, in_memory(ahead, sampling, first=len(names)), batches, sampling, shortcuts
            )
        with _standing_in(pairs[name] for name in left[first:]):
            specs = {name: pairs[name].spec for name in names}
            wanted = {name: samples.pop(name) for name in names}
            moments = collect_moments(
                compressed, specs, batches, halved, samples=wanted, shortcuts=shortcuts, prefix=prefix
            )
            centered = {name: pairs[name].layer.plan.stages[-1].bias or takes_means(original, name) for name in names}
            targets = {name: _targets(pairs[name], moments.pop(name), centered=centered[name]) for name in names}
            chosen = _choose_targets(prefix_of_probes, pairs, targets, probes)
            targets.clear()
        for name in names:
            layer, trained, _ = pairs[name]
            correction, its_moments = chosen.pop(name)
            found = fit_outputs(
                layer.plan,
                its_moments,
                trained.get_parameter("weight"),
                centered=centered[name],
                metric=metrics.get(name) if metrics else None,
                correction=correction,
            )
            _load_(layer, found.parameters)
            norm = norm_after(original, name)
            if norm and not layer.plan.stages[-1].bias:
                shift_norm_(compressed.get_submodule(norm), original.get_submodule(norm), found.bias)
            fitted.append(FittedLayer(name, str(layer.plan), found.relative_error, found.weight_fit_error))
        on_progress(fitted, len(order))
    norms = move_norms_(compressed, original, batches)
    return NetworkFit(tuple(fitted), skipped, norms)


class FitTarget(NamedTuple):
    """What a layer may be fitted to.

    Attributes:
        correction: How much of the errors before it that corrects; None: all, since one input can't tell.
        moments: Of its inputs and of what it shall give.
    """

    correction: Correction | None
    moments: Moments


def _targets(pair: Pair, parts: Sequence[Moments], *, centered: bool) -> list[FitTarget]:
    """Return what a layer may be fitted to: where it has a shortcut their sum, and its own outputs.

    Args:
        pair: The layer.
        parts: Its moments in two halves, whose tensors end here; of one input there is only one.
        centered: As for ``OutputProblem``.
    """
    weight, bias = pair.trained.get_parameter("weight"), getattr(pair.trained, "bias", None)
    d = len(weight)
    if len(parts) < 2:
        return [FitTarget(None, parts[0].of_outputs(slice(d)))]
    kinds = len(parts[0].output_mean) // d
    weights = torch.cat([weight.detach()] * kinds)
    biases = None if bias is None else torch.cat([bias.detach()] * kinds)
    correction, whole = find_correction((parts[0], parts[1]), weights, biases, centered=centered)
    each = [slice(d * kind, d * (kind + 1)) for kind in reversed(range(kinds))]
    return [FitTarget(correction.of_outputs(some), whole.of_outputs(some)) for some in each]


def _choose_targets(
    prefix: Prefix,
    pairs: Mapping[str, Pair],
    targets: Mapping[str, Sequence[FitTarget]],
    probes: Sequence[Probe],
) -> dict[str, FitTarget]:
    """Return what the layers of a block are fitted to: what brings the network's outputs nearest to the original's.

    Args:
        prefix: Of the network in which the layers of the block compute what the convolutions that they replace do.
        pairs: All layers.
        targets: Of the layers of the block, in the order in which they run.
        probes: What the network is run on.
    """

    def error_of(chosen: Mapping[str, FitTarget]) -> float:
        with ExitStack() as stack:
            for name, (correction, _) in chosen.items():
                if correction:
                    trained = pairs[name].trained
                    weight = trained.get_parameter("weight").detach().clone()
                    stack.enter_context(replaced(trained, correction.kernel(weight), correction.bias(weight)))
            return output_error(prefix, next(iter(targets)), probes)

    def at(share: float, chosen: Mapping[str, FitTarget]) -> dict[str, FitTarget]:
        return {
            name: FitTarget(correction and correction.at(share), moments)
            for name, (correction, moments) in chosen.items()
        }

    kinds = [
        {name: some[min(kind, len(some) - 1)] for name, some in targets.items()}
        for kind in range(max(map(len, targets.values())))
    ]
    least, best = _least([at(SHARES[0], chosen) for chosen in kinds], error_of)
    less, other = _least([at(share, best) for share in SHARES[1:]], error_of)
    return other if less < least else best


def _least(
    choices: Sequence[Mapping[str, FitTarget]], error_of: Callable[[Mapping[str, FitTarget]], float]
) -> tuple[float, dict[str, FitTarget]]:
    """Return the least error and the first choice that has it; infinite where there is none."""
    errors = [error_of(choice) for choice in choices]
    least = min(errors, default=inf)
    return least, dict(choices[errors.index(least)]) if errors else {}


def _pairs(compressed: nn.Module, original: nn.Module) -> tuple[dict[str, Pair], dict[str, str]]:
    """Return the replaced layers with what they replace, and why some can't be fitted."""
    own = dict(original.named_modules())
    pairs: dict[str, Pair] = {}
    skipped: dict[str, str] = {}
    for name, layer in compressed.named_modules():
        if not isinstance(layer, CompositeConv):
            continue
        before = own.get(name)
        if not isinstance(before, PLAIN_CONVOLUTIONS) or type(before) not in PLAIN_CONVOLUTIONS:
            kind = type(before).__name__ if before is not None else "nothing"
            skipped[name] = f"it replaces {kind}, not a plain convolution; it keeps the fit to the weights"
        elif layer.plan.spec.groups > 1:
            skipped[name] = "a grouped convolution is not fitted to outputs"
        elif layer.plan.obstacle:
            skipped[name] = layer.plan.obstacle
        else:
            pairs[name] = Pair(layer, before, spec_of(before))
    if not pairs and not skipped:
        raise ConversionError("the network has no converted layer, so there is nothing to fit; convert it first")
    return pairs, skipped


@contextmanager
def _standing_in(pairs: Iterable[Pair]) -> Iterator[None]:
    """Let layers that are not fitted yet compute what the convolutions that they replace compute of their inputs."""
    with ExitStack() as stack:
        for layer, trained, _ in pairs:
            stack.enter_context(with_forward(layer, trained))
        yield


def takes_means(model: nn.Module, name: str) -> bool:
    """Return whether the mean of a convolution's outputs is taken up: by its bias, or by the batch norm after it."""
    return spec_of(model.get_submodule(name)).bias or norm_after(model, name) is not None


@torch.no_grad()
def _load_(layer: CompositeConv, parameters: list[list[tuple[torch.Tensor, torch.Tensor | None]]]) -> None:
    for own, new in zip(layer.stage_parameters(), parameters, strict=True):
        for (weight, bias), (new_weight, new_bias) in zip(own, new, strict=True):
            weight.copy_(new_weight)
            if bias is not None and new_bias is not None:
                bias.copy_(new_bias)
