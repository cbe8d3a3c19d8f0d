"""What each candidate of each layer would do to the network's outputs, predicted without running the network with it.

The rise of a candidate is ``E[eᵀ G e]``: its error over the calibration inputs of the original network, after a quick
fit, counted by the layer's sensitivity G. Rises of layers are added up, which takes their errors as independent.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from torch import Tensor, nn

from cruciform.budgets.survey import Valuation
from cruciform.compression.fitting.lockstep import Batches, Sampling, collect_moments
from cruciform.compression.fitting.output_fit import quick_error
from cruciform.compression.fitting.output_problem import OutputProblem
from cruciform.errors import ConversionError
from cruciform.nn.inspect import spec_of
from cruciform.schemes import DENSE, make_plan
from cruciform.spec import ConvSpec

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
        """Return the schemes whose rise is known."""
        return [scheme for scheme in self.rises.get(name, {}) if scheme != DENSE]

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
            rises[name] = {DENSE: 0.0}
            for scheme in candidates[name]:
                try:
                    rises[name][scheme] = quick_error(make_plan(specs[name], scheme), problem)
                except ConversionError:  # it can't be fitted, so it is no candidate here
                    continue
            on_progress(len(rises), len(specs))
    return rises


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
