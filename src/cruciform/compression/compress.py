"""Compresses a trained network: chosen in measured time, fitted to what it computes.

1. One pass of gradients finds how much errors of every layer's outputs count (``fitting.sensitivity``).
2. Every candidate of every layer gets a predicted rise of the network's error (``predicted_rise``) and a measured time
   (``budgets.costs``).
3. The solver of budgets chooses the least total rise within the time. The chosen network is timed beside the dense one,
   and the time that is asked of the solver corrected until the measured time is what was wanted.
4. Where a layer's chosen shapes have no join, the original's channels are put into the order that suits them.
5. The layers are fitted one after the other, each to what the original computes (``fitting.fit_network``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from torch import Tensor, nn

from cruciform.budgets.budget_plan import BudgetPlan
from cruciform.budgets.measured_choice import choose_measured
from cruciform.budgets.plan_clock import MeasuredPlan, PlanClock
from cruciform.budgets.solving.solver import import_scipy
from cruciform.budgets.survey import Survey, survey_network
from cruciform.budgets.units.cost_unit import Limit
from cruciform.compression.batching import batches_of
from cruciform.compression.channel_order.reordered_network import (
    find_fixed_orders,
    reorder_metrics,
    reorder_network,
)
from cruciform.compression.channel_order.shape_assignment import has_shapes_side_by_side
from cruciform.compression.compression_state import CompressionState, key_of
from cruciform.compression.fitting.fit_network import FittedLayer, NetworkFit, fit_network_
from cruciform.compression.fitting.layer_moments import Sampling
from cruciform.compression.fitting.sensitivity import measure_sensitivity
from cruciform.compression.predicted_rise import CLEARLY, PredictedRises, RiseValuation, predict_rises, worth_timing
from cruciform.compression.rank_candidates import list_rank_candidates
from cruciform.conversion.convert import FIT, Conversion, convert, plan_conversion
from cruciform.deployment.search.build import EngineSettings
from cruciform.deployment.search.choose import ProgressCallback
from cruciform.errors import OptionError
from cruciform.measure.state_guard import in_mode
from cruciform.nn.inspect import spec_of
from cruciform.schemes import DENSE, make_plan
from cruciform.spec import ConvSpec
from cruciform.text.wording import listed


@dataclass(frozen=True)
class CompressionOptions:
    """How a network is compressed.

    Attributes:
        protect: Name patterns of layers to keep dense.
        block: Layers that are fitted in one pass of the compressed network; 1 is the most exact, more are faster.
        state: A folder from which a compression that was stopped is resumed; None: nothing is kept.
        on_progress: Called with what is being done.
    """

    protect: Sequence[str] = ()
    block: int = 1
    state: Path | None = None
    on_progress: ProgressCallback = lambda what: None


@dataclass(frozen=True)
class Compressed:
    """A compressed network.

    Attributes:
        plan: What was chosen for every layer, and why.
        conversion: The network and its conversion table.
        fit: How well each layer reproduces the original's outputs.
        seconds: The time of a batch.
        dense_seconds: The same of the original, timed in the same rounds.
        reordered: Layers whose output channels are in another order than the original's.
    """

    plan: BudgetPlan
    conversion: Conversion = field(repr=False)
    fit: NetworkFit
    seconds: float
    dense_seconds: float
    reordered: tuple[str, ...] = ()

    @property
    def rise(self) -> float:
        """The predicted rise of the network's output error, summed over its layers."""
        return -sum(layer.value for layer in self.plan.layers)


class Compressor:
    """A trained network that is ready to be compressed to any budget.

    Args:
        model: The trained network.
        images: Calibration inputs, (n, channels, …), preprocessed; no labels are needed.
        setting: The engine, batch size and threads.
        costs: Where measured times are cached.
        options: Protected layers, sampling, where to resume from, progress.
    """

    def __init__(
        self,
        model: nn.Module,
        images: Tensor,
        setting: EngineSettings,
        costs: Path,
        options: CompressionOptions | None = None,
    ) -> None:
        import_scipy()
        if tuple(images.shape[1:]) != tuple(setting.input_size):
            raise OptionError(
                f"the calibration images have shape {tuple(images.shape[1:])}; the network is compressed for "
                f"{tuple(setting.input_size)}"
            )
        self._model, self._setting, self._costs = model, setting, costs
        self._options = options or CompressionOptions()
        protect = tuple(self._options.protect)
        self._sampling = Sampling(inputs=len(images), block=self._options.block)
        sampled = replace(self._sampling, block=1)
        key = key_of(model, images, setting.target.name, setting.batch, setting.threads, protect, sampled)
        self._state = CompressionState(self._options.state, key, self._options.block)
        with in_mode(model, training=False):
            self._batches = batches_of(model, images)
            self._valuation, self._metrics = self._prepare(protect)

    @property
    def rises(self) -> Mapping[str, Mapping[str, float]]:
        """The predicted rise of every candidate, by layer and scheme."""
        return self._valuation.rises

    @cached_property
    def survey(self) -> Survey:
        """The candidates of every layer, their times and predicted rises; times are measured where they are needed."""
        model, progress = self._model, self._options.on_progress
        with in_mode(model, training=False):
            return survey_network(model, self._setting, self._valuation, self._costs, on_progress=progress)

    def compress(self, limits: Mapping[str, Limit]) -> Compressed:
        """Choose within a budget, and fit.

        Args:
            limits: By cost unit.

        Raises:
            BudgetError: The budget can't be met.
        """
        return self.fit(self.choose(limits))

    def choose(self, limits: Mapping[str, Limit]) -> MeasuredPlan:
        """Choose within a budget, without fitting: all that is timed happens here.

        Raises:
            BudgetError: The budget can't be met.
        """
        clock = PlanClock(self._model, self._setting, self._options.on_progress)
        return choose_measured(self.survey, limits, clock)

    def fit(self, measured: MeasuredPlan) -> Compressed:
        """Convert the network by a plan, and fit its layers to what the original computes."""
        model, size, plan = self._model, self._setting.input_size, measured.plan
        times = measured.seconds, measured.dense_seconds
        with in_mode(model, training=False):
            if not plan.mapping:
                dense = convert(model, DENSE, init=FIT, input_size=size)
                dense.model.eval()
                return Compressed(plan, dense, NetworkFit((), {}, 0), *times)
            wanted = {name: self._orders.get(name, {}).get(scheme) for name, scheme in plan.mapping.items()}
            ordered = reorder_network(model, {name: order for name, order in wanted.items() if order}, self._batches)
            conversion = convert(ordered.model, plan.mapping, init=FIT, input_size=size)
            conversion.model.eval()
            done = self._state.read_fitted_(conversion, ordered.orders)

            def report(fitted: list[FittedLayer], total: int) -> None:
                self._options.on_progress(f"fitted layer {len(fitted)} of {total}")
                self._state.write_fitted(conversion, fitted, ordered.orders, last=len(fitted) == total)

            found = fit_network_(
                conversion.model,
                ordered.model,
                self._batches,
                sampling=self._sampling,
                metrics=self._metrics | reorder_metrics(self._metrics, ordered.orders),
                done=done,
                on_progress=report,
            )
        plan = replace(plan, problems=(*plan.problems, *_in_sentences(ordered.fixed)))
        return Compressed(plan, conversion, found, *times, tuple(ordered.orders))

    def _prepare(self, protect: tuple[str, ...]) -> tuple[RiseValuation, dict[str, Tensor]]:
        model, setting = self._model, self._setting
        names = _convertible(model, setting, protect)
        self._options.on_progress("sensitivities, by one pass of gradients")
        metrics = measure_sensitivity(model, names, self._batches)
        specs = {name: spec_of(model.get_submodule(name)) for name in metrics}
        kept = self._state.read("rises")
        if kept is None:
            kept = self._predict(specs, metrics)
            self._state.write("rises", kept)
        rises, self._orders, unfit = PredictedRises(*kept)
        left_out = [f"{name} stays dense: no gradient reaches it" for name in names if name not in metrics] + unfit
        untimed = sum(len(rises[name]) - 1 - len(worth_timing(spec, rises[name])) for name, spec in specs.items())
        if untimed:
            left_out.append(
                f"{untimed} candidates were not timed: others have {1 - CLEARLY:.0%} fewer MACs and no larger error"
            )
        return RiseValuation(protect=protect, trained=True, rises=rises, left_out=tuple(left_out)), metrics

    def _predict(self, specs: Mapping[str, ConvSpec], metrics: Mapping[str, Tensor]) -> PredictedRises:
        """Predict what the candidates do, in the best order of channels where it is free."""
        candidates = {name: list_rank_candidates(spec) for name, spec in specs.items()}
        ordered = [
            name
            for name, _ in self._model.named_modules()
            if any(has_shapes_side_by_side(make_plan(specs[name], one)) for one in candidates.get(name, ()))
        ]
        fixed = find_fixed_orders(self._model, ordered, self._batches)
        found = predict_rises(
            self._model,
            candidates,
            metrics,
            self._batches,
            reorderable=[name for name in ordered if name not in fixed],
            sampling=self._sampling,
            on_progress=lambda done, total: self._options.on_progress(f"candidates of layer {done} of {total}"),
        )
        return found._replace(problems=found.problems + _in_sentences(fixed))


def _convertible(model: nn.Module, setting: EngineSettings, protect: Sequence[str]) -> list[str]:
    """Return the layers that can be converted and are plain convolutions."""
    report = plan_conversion(model, "lr", protect=protect, input_size=setting.input_size)
    names = [row.names[0] for row in report.layers if row.plan is not None]
    return [name for name in names if list_rank_candidates(spec_of(model.get_submodule(name)))]


def _in_sentences(fixed: Mapping[str, str]) -> list[str]:
    """Say of layers why the order of their channels was not chosen, those of one reason together."""
    names: dict[str, list[str]] = {}
    for name, reason in fixed.items():
        names.setdefault(reason, []).append(name)
    return [f"channels keep their order in {listed(some)}: {reason}" for reason, some in names.items()]
