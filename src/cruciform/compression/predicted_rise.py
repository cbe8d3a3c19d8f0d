"""What each candidate of each layer would do to the network's outputs, predicted without running the network with it.

The rise of a candidate is ``f · E[eᵀ G e]``: its error over the calibration inputs of the original network, after a
quick fit, counted by the layer's sensitivity G. The factor f of a layer is measured: the network is run once with a
candidate of middle error in its place, since errors of neighboring positions are not independent, and add up the more,
the larger the maps. Rises of layers are added up, which takes errors of different layers as independent.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import prod

from torch import Tensor, nn

from cruciform.budgets.survey import Valuation
from cruciform.compression.fitting.lockstep import Batches, Sampling, collect_moments
from cruciform.compression.fitting.measured_rise import measure_rise
from cruciform.compression.fitting.output_fit import QuickFit, fit_quickly
from cruciform.compression.fitting.output_problem import OutputProblem
from cruciform.compression.rank_candidates import count_weights
from cruciform.errors import ConversionError
from cruciform.nn.inspect import spec_of
from cruciform.schemes import DENSE, make_plan
from cruciform.spec import ConvSpec

CLEARLY = 0.75
"""A candidate with this fraction of another's MACs is faster, whatever the engine; nearer ones are timed."""
MEMORY = 1.5e9
"""Bytes of second moments that are held at once."""


@dataclass(frozen=True)
class RiseValuation(Valuation):
    """Values a candidate by the predicted rise of the network's output error: the less, the more it is worth.

    Attributes:
        rises: By layer and scheme.
    """

    rises: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def candidates_of(self, name: str, spec: ConvSpec) -> list[str]:
        """Return the schemes that are worth timing: those that no other one clearly beats in MACs and rise."""
        rises = self.rises.get(name, {})
        weights = {scheme: count_weights(make_plan(spec, scheme)) for scheme in rises}

        def is_beaten(scheme: str) -> bool:
            return any(rises[other] <= rises[scheme] and weights[other] <= CLEARLY * weights[scheme] for other in rises)

        return [scheme for scheme in rises if scheme != DENSE and not is_beaten(scheme)]

    def value_of(self, name: str, spec: ConvSpec, scheme: str, weight: Tensor) -> float:
        """Return the rise, negative: 0 is the dense layer."""
        return 0.0 if scheme == DENSE else -self.rises[name][scheme]

    def in_words(self, value: float) -> str:
        """Say what a value means."""
        return f"raises the output error by {-value:.2g}"


def predict_rises(
    model: nn.Module,
    candidates: Mapping[str, Sequence[str]],
    metrics: Mapping[str, Tensor],
    batches: Batches,
    *,
    takes_means: Mapping[str, bool],
    sampling: Sampling,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, dict[str, float]]:
    """Return the rise by layer and scheme.

    Args:
        model: The trained network, in evaluation mode.
        candidates: The schemes of each layer; one that can't be fitted is left out of the answer.
        metrics: G of each layer.
        batches: The calibration inputs.
        takes_means: Whether a bias or norm takes up the means of each layer's outputs.
        sampling: How many patches are taken.
        on_progress: Called with how many layers of how many are done.
    """
    specs = {name: spec_of(model.get_submodule(name)) for name in candidates}  # type: ignore[arg-type]
    rises: dict[str, dict[str, float]] = {}
    for names in _in_memory(specs):
        moments = collect_moments(model, model, {name: specs[name] for name in names}, batches, sampling)
        for name in names:
            problem = OutputProblem(
                moments.pop(name),
                model.get_parameter(f"{name}.weight"),
                centered=takes_means[name],
                metric=metrics[name],
            )
            fits: dict[str, QuickFit] = {}
            for scheme in candidates[name]:
                with suppress(ConversionError):  # one that can't be fitted is no candidate here
                    fits[scheme] = fit_quickly(make_plan(specs[name], scheme), problem)
            factor = _measured_factor(model, name, list(fits.values()), next(iter(batches())))
            rises[name] = {DENSE: 0.0} | {scheme: factor * fit.error for scheme, fit in fits.items()}
            on_progress(len(rises), len(specs))
    return rises


def _measured_factor(model: nn.Module, name: str, fits: Sequence[QuickFit], images: Tensor) -> float:
    """Return the measured rise of the candidate of middle error as a multiple of the predicted one."""
    ordered = sorted(fits, key=lambda fit: fit.error)
    middle = ordered[len(ordered) // 2] if ordered else None
    if middle is None or middle.error <= 0:
        return 1.0
    return measure_rise(model, name, middle.kernel, middle.bias, images) / middle.error or 1.0


def _in_memory(specs: Mapping[str, ConvSpec]) -> Iterator[list[str]]:
    """Split layers into lists whose moments fit into memory together."""
    names: list[str] = []
    held = 0.0
    for name, spec in specs.items():
        needed = 8.0 * (spec.in_channels * prod(spec.kernel)) ** 2
        if names and held + needed > MEMORY:
            yield names
            names, held = [], 0.0
        names.append(name)
        held += needed
    if names:
        yield names
