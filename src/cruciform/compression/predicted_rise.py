"""What each candidate of each layer would do to the network's outputs, predicted with one run of the network a layer.

The rise of a candidate is ``f · E[eᵀ G e]``: its error over the calibration inputs of the original network, after a
quick fit, counted by the layer's sensitivity G. The factor f of a layer is measured: the network is run once with a
candidate of middle error in its place, since errors of neighboring positions are not independent, and add up the more,
the larger the maps. Rises of layers are added up, which takes errors of different layers as independent.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from torch import Tensor, nn

from cruciform.budgets.survey import Valuation
from cruciform.compression.fitting.lockstep import Batches, Sampling, collect_moments
from cruciform.compression.fitting.measured_rise import measure_rise, take_probes
from cruciform.compression.fitting.output_fit import QuickFit, fit_quickly
from cruciform.compression.fitting.output_problem import OutputProblem
from cruciform.compression.rank_candidates import count_weights
from cruciform.errors import ConversionError
from cruciform.nn.inspect import spec_of
from cruciform.schemes import DENSE, make_plan
from cruciform.spec import ConvSpec

CLEARLY = 0.75
"""A candidate with this fraction of another's MACs is faster, whatever the engine; nearer ones are timed."""
PASSES, FEWEST, MOST = 4, 2, 256
"""All layers are run with a candidate in as many passes over the calibration inputs, each on so many inputs."""
MEMORY = 1.5e9
"""Bytes of second moments that are held at once."""


@dataclass(frozen=True)
class RiseValuation(Valuation):
    """Values a candidate by the predicted rise of the network's output error: the less, the more it is worth.

    Attributes:
        rises: By layer and scheme.
        left_out: Layers and candidates that were not considered, with the reason.
    """

    rises: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    @property
    def problems(self) -> list[str]:
        """What was not considered, with the reason."""
        return list(self.left_out)

    def candidates_of(self, name: str, spec: ConvSpec) -> list[str]:
        """Return the schemes that are worth timing: those that no other one clearly beats in MACs and rise."""
        return worth_timing(spec, self.rises.get(name, {}))

    def value_of(self, name: str, spec: ConvSpec, scheme: str, weight: Tensor) -> float:
        """Return the rise, negative: 0 is the dense layer."""
        return 0.0 if scheme == DENSE else -self.rises[name][scheme]

    def in_words(self, value: float) -> str:
        """Say what a value means."""
        return f"raises the output error by {-value:.2g}"


def worth_timing(spec: ConvSpec, rises: Mapping[str, float]) -> list[str]:
    """Return the candidates of a layer that no other one clearly beats in MACs and rise."""
    weights = {scheme: count_weights(make_plan(spec, scheme)) for scheme in rises}

    def is_beaten(scheme: str) -> bool:
        return any(rises[other] <= rises[scheme] and weights[other] <= CLEARLY * weights[scheme] for other in rises)

    return [scheme for scheme in rises if scheme != DENSE and not is_beaten(scheme)]


def predict_rises(
    model: nn.Module,
    candidates: Mapping[str, Sequence[str]],
    metrics: Mapping[str, Tensor],
    batches: Batches,
    *,
    takes_means: Mapping[str, bool],
    sampling: Sampling,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[dict[str, dict[str, float]], list[str]]:
    """Return the rise by layer and scheme, and sentences about candidates that can't be fitted.

    Args:
        model: The trained network, in evaluation mode.
        candidates: The schemes of each layer.
        metrics: G of each layer.
        batches: The calibration inputs.
        takes_means: Whether a bias or norm takes up the means of each layer's outputs.
        sampling: How many patches are taken.
        on_progress: Called with how many layers of how many are done.
    """
    specs = {name: spec_of(model.get_submodule(name)) for name in candidates}  # type: ignore[arg-type]
    rises: dict[str, dict[str, float]] = {}
    problems: list[str] = []
    probes = take_probes(model, batches, max(FEWEST, min(MOST, PASSES * sampling.inputs // max(1, len(specs)))))
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
                try:
                    fits[scheme] = fit_quickly(make_plan(specs[name], scheme), problem)
                except ConversionError as error:
                    problems.append(f"{name} can't be {scheme}: {error}")
            middle = _of_middle_error(list(fits.values()))
            factor = 1.0
            if middle is not None:
                measured = measure_rise(model, name, middle.kernel, middle.bias, probes)
                factor = measured / middle.error or 1.0
            rises[name] = {DENSE: 0.0} | {scheme: factor * fit.error for scheme, fit in fits.items()}
            on_progress(len(rises), len(specs))
    return rises, problems


def _of_middle_error(fits: Sequence[QuickFit]) -> QuickFit | None:
    ordered = sorted((fit for fit in fits if fit.error > 0), key=lambda fit: fit.error)
    return ordered[len(ordered) // 2] if ordered else None


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
