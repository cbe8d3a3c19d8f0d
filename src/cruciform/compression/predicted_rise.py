"""What each candidate of each layer would do to the network's outputs, predicted with three runs of it a layer.

The rise of a candidate follows from its error ``e = E[eᵀ G e]`` over the calibration inputs of the original network,
after a quick fit, counted by the layer's sensitivity G. How, is measured for each layer, by running the network with
its candidates of small, middle and largest error: errors of neighboring positions are not independent, and the rise
grows faster than the error. Between these it is interpolated, linearly in the logarithms of both. Rises of layers are
added up, which takes errors of different layers as independent.

Candidates of several shapes without a join are taken with the best order of the layer's channels, where it is free.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import exp, log, prod
from typing import NamedTuple

from torch import Tensor, nn

from cruciform.budgets.survey import Valuation
from cruciform.compression.channel_order.shape_assignment import fit_in_best_order
from cruciform.compression.fitting.fit_network import takes_means
from cruciform.compression.fitting.layer_moments import Batches, Sampling, collect_moments
from cruciform.compression.fitting.measured_rise import Probe, measure_rise, take_probes
from cruciform.compression.fitting.moments import ROUNDING_SHARE
from cruciform.compression.fitting.output_fit import QuickFit
from cruciform.compression.fitting.output_problem import OutputProblem
from cruciform.compression.fitting.prefix import Prefix
from cruciform.compression.rank_candidates import count_weights
from cruciform.errors import ConversionError
from cruciform.nn.inspect import spec_of
from cruciform.schemes import DENSE, make_plan
from cruciform.spec import ConvSpec

CLEARLY = 0.75
"""A candidate with this fraction of another's MACs is faster, whatever the engine; nearer ones are timed."""
PASSES, FEWEST, MOST = 4, 2, 256
"""All layers are run with three candidates in as many passes over the calibration inputs, each on so many inputs."""
SLOPES = 0.5, 3.0
"""Within which a slope is believed: outputs are noisy with few inputs, and saturate under large errors."""
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


class PredictedRises(NamedTuple):
    """What is known of the candidates of all layers before one is chosen; plain data, to be stored.

    Attributes:
        rises: By layer and scheme.
        orders: By layer and scheme, the order of output channels in which the rise is the least; none where their own
            order is as good, or fixed.
        problems: Sentences about candidates that can't be fitted.
    """

    rises: dict[str, dict[str, float]]
    orders: dict[str, dict[str, list[int]]]
    problems: list[str]


def predict_rises(
    model: nn.Module,
    candidates: Mapping[str, Sequence[str]],
    metrics: Mapping[str, Tensor],
    batches: Batches,
    *,
    reorderable: Collection[str],
    sampling: Sampling,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> PredictedRises:
    """Predict the rise of every candidate of every layer.

    Args:
        model: The trained network, in evaluation mode.
        candidates: The schemes of each layer.
        metrics: G of each layer.
        batches: The calibration inputs.
        reorderable: Layers whose output channels may be put into any order.
        sampling: How many patches are taken.
        on_progress: Called with how many layers of how many are done.
    """
    specs = {name: spec_of(model.get_submodule(name)) for name in candidates}
    rises: dict[str, dict[str, float]] = {}
    orders: dict[str, dict[str, list[int]]] = {}
    problems: list[str] = []
    probes = take_probes(model, batches, max(FEWEST, min(MOST, PASSES * sampling.inputs // max(1, 3 * len(specs)))))
    prefix = Prefix(model, probes[0].images[:1])
    for names in _in_memory(specs):
        moments = collect_moments(model, {name: specs[name] for name in names}, batches, sampling)
        for name in names:
            problem = OutputProblem(
                moments.pop(name)[0],
                model.get_parameter(f"{name}.weight"),
                centered=takes_means(model, name),
                metric=metrics[name],
            )
            fits: dict[str, QuickFit] = {}
            for scheme in candidates[name]:
                try:
                    plan = make_plan(specs[name], scheme)
                    fits[scheme], order = fit_in_best_order(plan, problem, reorderable=name in reorderable)
                except ConversionError as error:
                    problems.append(f"{name} can't be {scheme}: {error}")
                    continue
                if order:
                    orders.setdefault(name, {})[scheme] = order
            exact = ROUNDING_SHARE * problem.energy
            rise_of = _measure_rises(prefix, name, [fit for fit in fits.values() if fit.error > exact], probes)
            rises[name] = {DENSE: 0.0}
            rises[name] |= {scheme: rise_of(fit.error) if fit.error > exact else 0.0 for scheme, fit in fits.items()}
            on_progress(len(rises), len(specs))
    return PredictedRises(rises, orders, problems)


def _measure_rises(
    prefix: Prefix, name: str, fits: Sequence[QuickFit], probes: Sequence[Probe]
) -> Callable[[float], float]:
    """Return the rise by the error of a candidate, from what three candidates of a layer do."""
    ordered = sorted(fits, key=lambda fit: fit.error)
    count = len(ordered)
    points: list[tuple[float, float]] = []
    for number in sorted({count // 4, count // 2, count - 1}) if count else ():
        fit = ordered[number]
        x, rise = log(fit.error), measure_rise(prefix, name, fit.kernel, fit.bias, probes)
        if rise <= 0 or (points and x <= points[-1][0]):
            continue
        y = log(rise)
        if points:
            before, risen = points[-1]
            slope = max(SLOPES[0], min((y - risen) / (x - before), SLOPES[1]))
            y = risen + slope * (x - before)
        points.append((x, y))
    return partial(_interpolate, points)


def _interpolate(points: Sequence[tuple[float, float]], error: float) -> float:
    """Return the rise of an error on the line through measured points, (log error, log rise) by rising error."""
    if not points:
        return error
    x = log(error)
    if len(points) == 1:
        ((before, risen),), slope = points, 1.0
    else:
        after = max(1, min(bisect_left(points, (x,)), len(points) - 1))
        (before, risen), (end, most) = points[after - 1 : after + 1]
        slope = (most - risen) / (end - before)
    return exp(risen + slope * (x - before))


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
