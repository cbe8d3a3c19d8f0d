"""Converts a trained network by a given scheme, fitted to what it computes.

1. One pass of gradients finds how much errors of every layer's outputs count (``fitting.sensitivity``).
2. Where a layer gets several shapes side by side without a join, its output channels are put into the order that suits
   them, wherever that is exact (``channel_order``).
3. The layers are fitted one after the other, each to what the original computes (``fitting.fit_network``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor, nn

from cruciform.budgets.solving.solver import import_scipy
from cruciform.compression.channel_order.reordered_network import (
    find_fixed_orders,
    reorder_metrics,
    reorder_network,
)
from cruciform.compression.channel_order.shape_assignment import fit_in_best_order, has_shapes_side_by_side
from cruciform.compression.fitting.fit_network import NetworkFit, fit_network_, takes_means
from cruciform.compression.fitting.layer_moments import Batches, Sampling, collect_moments
from cruciform.compression.fitting.output_problem import OutputProblem
from cruciform.compression.fitting.sensitivity import measure_sensitivity
from cruciform.conversion.conversion_report import ConversionReport
from cruciform.conversion.convert import FIT, Conversion, convert, plan_conversion
from cruciform.conversion.eligible import adaptation_of
from cruciform.errors import ConversionError
from cruciform.measure.state_guard import in_mode
from cruciform.nn.inspect import PLAIN_CONVOLUTIONS, spec_of
from cruciform.plan import LayerPlan
from cruciform.text.wording import listed


@dataclass(frozen=True)
class FittedConversion:
    """A trained network, converted and fitted.

    Attributes:
        conversion: The network and its conversion table.
        fit: How well each layer reproduces the original's outputs.
        reordered: Layers whose output channels are in another order than the original's.
        fixed: By name, why the channels of other layers with several shapes keep their order.
    """

    conversion: Conversion = field(repr=False)
    fit: NetworkFit
    reordered: tuple[str, ...]
    fixed: Mapping[str, str]


def check_can_be_fitted(model: nn.Module, scheme: str, *, protect: Sequence[str] = ()) -> ConversionReport:
    """Return the planned conversion of a network; raise where ``convert_fitted`` would refuse it once it is trained.

    Args:
        model: The network.
        scheme: Of all layers.
        protect: Name patterns of layers to keep dense.
    """
    report = plan_conversion(model, scheme, protect=protect)
    plans = _plans(report)
    if not plans:
        reasons = listed(sorted({row.reason for row in report.layers})) or "it has no convolutions"
        raise ConversionError(f"the scheme {scheme!r} replaces no convolution: {reasons}")
    computed = [name for name in plans if not adaptation_of(model.get_submodule(name)).fits]
    if computed:
        raise ConversionError(f"{listed(computed)} can't be fitted: the layer computes its weight from others")
    if any(map(has_shapes_side_by_side, plans.values())):
        import_scipy()
    return report


def convert_fitted(
    model: nn.Module, scheme: str, images: Tensor, *, batch_size: int, protect: Sequence[str] = ()
) -> FittedConversion:
    """Convert a copy of a trained network, with outputs as near to its own as the scheme allows.

    Args:
        model: The trained network; it stays what it is.
        scheme: Of all layers.
        images: Calibration inputs, (n, channels, …), preprocessed; no labels are needed.
        batch_size: How many of them the network is run on at once, at most.
        protect: Name patterns of layers to keep dense.
    """
    parts = images.tensor_split(-(-len(images) // batch_size))  # of nearly equal size: a norm needs more than one

    def batches() -> Sequence[Tensor]:
        return parts

    with in_mode(model, training=False):
        plans = {
            name: plan
            for name, plan in _plans(plan_conversion(model, scheme, protect=protect)).items()
            if type(model.get_submodule(name)) in PLAIN_CONVOLUTIONS and plan.spec.groups == 1
        }
        metrics = measure_sensitivity(model, list(plans), batches)
        sampling = Sampling(inputs=len(images))
        orders, fixed = _choose_orders(model, plans, metrics, batches, sampling)
        ordered = reorder_network(model, orders, batches)
        conversion = convert(ordered.model, scheme, init=FIT, protect=protect, input_size=tuple(images.shape[1:]))
        fit = fit_network_(
            conversion.model,
            ordered.model,
            batches,
            sampling=sampling,
            metrics=metrics | reorder_metrics(metrics, ordered.orders),
        )
    return FittedConversion(conversion, fit, tuple(ordered.orders), {**fixed, **ordered.fixed})


def _plans(report: ConversionReport) -> dict[str, LayerPlan]:
    return {row.names[0]: row.plan for row in report.layers if row.plan is not None}


def _choose_orders(
    model: nn.Module,
    plans: Mapping[str, LayerPlan],
    metrics: Mapping[str, Tensor],
    batches: Batches,
    sampling: Sampling,
) -> tuple[dict[str, list[int]], dict[str, str]]:
    """Return the best order of the output channels of each layer where it is free, and why it is not."""
    names = [name for name, plan in plans.items() if has_shapes_side_by_side(plan) and name in metrics]
    fixed = find_fixed_orders(model, names, batches) if names else {}
    orders: dict[str, list[int]] = {}
    for name in names:
        if name in fixed:
            continue
        moments = collect_moments(model, {name: spec_of(model.get_submodule(name))}, batches, sampling)[name][0]
        problem = OutputProblem(
            moments, model.get_parameter(f"{name}.weight"), centered=takes_means(model, name), metric=metrics[name]
        )
        try:
            _, order = fit_in_best_order(plans[name], problem, reorderable=True)
        except ConversionError as error:
            fixed[name] = str(error)
            continue
        if order:
            orders[name] = order
    return orders, fixed
