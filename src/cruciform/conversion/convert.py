"""Convert a network: ``convert`` a copy, ``convert_`` in place, ``plan_conversion`` as a dry run."""

import copy
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import nn

from cruciform.conversion.conversion_report import ConversionReport, LayerChange, Verification
from cruciform.conversion.eligible import adaptation_of
from cruciform.conversion.fit import fit_parameters, relative_residual
from cruciform.conversion.planning import Rules, SchemeChoice, plan_by
from cruciform.conversion.surgery import find_modules, refuse_wrapper, replace_modules_
from cruciform.conversion.trial import Trial, guess_trial, try_out
from cruciform.conversion.verification import count_again, verify_conversion
from cruciform.conversion.where import Where
from cruciform.errors import ConversionError, UnverifiedWarning, first_line, reraise_as
from cruciform.nn.activations import gain_squared
from cruciform.nn.composite import CompositeConv
from cruciform.nn.init_rules import Surroundings, initialize_layer_
from cruciform.nn.initialize import AUTO, rule_for
from cruciform.nn.inspect import kernel_of, refuse_unready
from cruciform.plan import LayerPlan
from cruciform.text.wording import listed

FIT = "fit"
_BY_CONVERSION = "_replaces_convolution_by"
_PLAIN_ATTRIBUTES = vars(nn.Conv2d(1, 1, 1, device="meta")).keys()


class Conversion(NamedTuple):
    """A converted network and its conversion table."""

    model: nn.Module
    report: ConversionReport

    def __str__(self) -> str:
        return str(self.report)

    def _repr_html_(self) -> str:
        return self.report._repr_html_()


def plan_conversion(
    model: nn.Module,
    scheme: SchemeChoice = "lr",
    *,
    where: Where | None = None,
    protect: Sequence[str] = (),
    input_size: Sequence[int] | None = None,
) -> ConversionReport:
    """Return the conversion table of a network without converting it.

    Args:
        model: The network.
        scheme: One for all, or from name patterns to schemes, of which the first that matches counts.
        where: Which convolutions, by the predicates of ``cruciform.conversion.where``; all where left out.
        protect: Name patterns of convolutions to keep.
        input_size: Channels and spatial size of one input, ``(3, 224, 224)``, to count multiply-accumulates by.
    """
    return plan_by(model, Rules(scheme, where, protect, input_size))


def convert(
    model: nn.Module,
    scheme: SchemeChoice = "lr",
    *,
    init: str = AUTO,
    activation: str | None = "relu",
    where: Where | None = None,
    protect: Sequence[str] = (),
    input_size: Sequence[int] | None = None,
) -> Conversion:
    """Convert a copy of a network; the arguments are those of ``convert_``."""
    refuse_unready(model)
    refuse_wrapper(model)
    start = _checked_start(model, Start(init, activation))
    with reraise_as(ConversionError, lambda error: _why_no_copy(model, error)):
        own = copy.deepcopy(model)
    # Planned on the original: functions and weak references in the copy still hold what the original's do.
    report = plan_by(model, Rules(scheme, where, protect, input_size))
    return _carry_out_(own, report, start, besides=model)


def convert_(
    model: nn.Module,
    scheme: SchemeChoice = "lr",
    *,
    init: str = AUTO,
    activation: str | None = "relu",
    where: Where | None = None,
    protect: Sequence[str] = (),
    input_size: Sequence[int] | None = None,
) -> Conversion:
    """Convert a network in place: its convolutions become layers of basis filters, initialized to train.

    Converting again changes nothing. Where the network is itself a convolution, its replacement is returned.

    Args:
        model: The network.
        scheme: As for ``plan_conversion``.
        init: A rule of initialization; ``"auto"``: the one that suits the network, as ``initialize_`` has it; or
            ``"fit"``: the weights that reproduce the trained ones best.
        activation: The non-linearity after the convolutions, by name, for the rule.
        where: As for ``plan_conversion``.
        protect: As for ``plan_conversion``.
        input_size: As for ``plan_conversion``; the converted network must have the MACs of its conversion table. Left
            out: a size that the network runs at is guessed, to verify the conversion by and nothing else.

    The network is run before and after on the meta device, in evaluation and in training mode, and must return the same
    shapes without its old weights. The report has how it was verified.

    Warns:
        UnverifiedWarning: No size was given, and none could be guessed that the network runs at.
    """
    start = _checked_start(model, Start(init, activation))
    return _carry_out_(model, plan_by(model, Rules(scheme, where, protect, input_size)), start)


def apply_conversion_(
    model: nn.Module,
    rules: Rules,
    *,
    init: str = AUTO,
    activation: str | None = "relu",
) -> Conversion:
    """Plan a conversion by rules and carry it out in place."""
    start = _checked_start(model, Start(init, activation))
    return _carry_out_(model, plan_by(model, rules), start)


@dataclass(frozen=True)
class Start:
    """How new layers are initialized: by a rule, for the activation after them."""

    init: str
    activation: str | None


def _checked_start(model: nn.Module, start: Start) -> Start:
    gain_squared(start.activation)  # an unknown one is refused also where nothing asks for it
    return start if start.init == FIT else replace(start, init=rule_for(model, start.init, besides=[FIT]))


def _carry_out_(
    model: nn.Module, report: ConversionReport, start: Start, *, besides: nn.Module | None = None
) -> Conversion:
    """Carry out a planned conversion and verify it; undo it if that fails.

    Args:
        model: The network.
        report: Of its planned conversion.
        start: How the new layers start.
        besides: The network that it is a copy of.
    """
    found = {item.name: item.module for item in find_modules(model).values()}
    before = _try_before(model, report)
    new: dict[str, nn.Module] = {}
    rows: list[LayerChange] = []
    for row in report.layers:
        if row.plan is not None:
            name, conv = row.names[0], found[row.names[0]]
            layer, residual = _start_layer(row.plan, conv, name, start)
            new[name], row = finish_layer(layer, conv), replace(row, residual=residual)  # noqa: PLW2901
        rows.append(row)
    report = replace(report, layers=tuple(rows), init=start.init)
    old = {
        id(parameter): name
        for name in new
        for network in (model, besides)
        if network is not None
        for parameter in network.get_submodule(name).parameters()
    }
    converted = replace_modules_(model, {id(found[name]): layer for name, layer in new.items()})
    try:
        if isinstance(before, Trial):
            names = {id(layer): name for name, layer in new.items()}
            report = replace(report, verification=verify_conversion(converted, before, new=names, old=old))
        elif before:
            report = replace(report, verification=Verification(why=before))
            warnings.warn(
                f"{type(model).__name__} was {report.verification}", UnverifiedWarning, stacklevel=_callers_level()
            )
        return Conversion(converted, count_again(converted, report))
    except BaseException:
        replace_modules_(converted, {id(layer): found[name] for name, layer in new.items()})
        raise


def _callers_level() -> int:
    """Return the ``stacklevel`` of the first caller outside this library."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "cruciform":
        frame, level = frame.f_back, level + 1
    return level


def _try_before(model: nn.Module, report: ConversionReport) -> Trial | str:
    """Run a network before its conversion; return why it can't be run, or nothing if nothing is replaced."""
    if not report.replaced:
        return ""
    if report.counted is None:
        return guess_trial(model)
    return try_out(model, report.counted.input_size, known={"evaluation": report.counted.outputs})


def _start_layer(plan: LayerPlan, conv: nn.Module, name: str, start: Start) -> tuple[CompositeConv, float | None]:
    """Return the initialized layer of a plan, and the residual of its weights where they were fitted."""
    layer = build_layer(conv, plan)
    if start.init == FIT:
        return layer, _fit_(layer, conv, name)
    around = Surroundings(start.activation)
    initialize_layer_(plan, layer.stage_parameters(), rule=start.init, around=around)
    return layer, None


def _why_no_copy(model: nn.Module, error: Exception) -> str:
    computed = [
        name or "the network"
        for name, module in model.named_modules()
        if any(isinstance(value, torch.Tensor) and not value.is_leaf for value in vars(module).values())
    ]
    if not computed:
        return f"the network can't be copied ({first_line(error)}); convert_ changes it in place"
    return (
        f"the network can't be copied: {listed(computed)} recomputes its weight at every step "
        "(torch.nn.utils.weight_norm or spectral_norm, pruning). Remove that first, or convert in place with convert_"
    )


def build_layer(conv: nn.Module, plan: LayerPlan) -> CompositeConv:
    """Return the layer of a plan on the convolution's device and in its dtype, its parameters uninitialized.

    Whoever calls it initializes, fits or loads them: drawing them here would advance torch's generator for nothing.
    """
    weight: torch.Tensor = conv.weight  # type: ignore[assignment]
    return CompositeConv(plan, device="meta", dtype=weight.dtype).to_empty(device=weight.device)


def finish_layer(layer: CompositeConv, conv: nn.Module) -> nn.Module:
    """Copy to a layer what its convolution has besides weights: mode, frozen parameters, extra attributes."""
    weight: torch.Tensor = conv.weight  # type: ignore[assignment]
    bias: torch.Tensor | None = conv.bias  # type: ignore[assignment]
    for stage in layer.stage_parameters():
        for kernel, own_bias in stage:
            kernel.requires_grad_(weight.requires_grad)
            if own_bias is not None and bias is not None:
                own_bias.requires_grad_(bias.requires_grad)
    finished = adaptation_of(conv).finish(layer, conv).train(conv.training)
    for name in vars(conv).keys() - vars(finished).keys() - _PLAIN_ATTRIBUTES:
        setattr(finished, name, vars(conv)[name])  # what its owner has written on it, for an optimizer perhaps
    mark_converted_(finished, layer.plan)
    return finished


def mark_converted_(module: nn.Module, plan: LayerPlan) -> None:
    """Mark a module as the replacement of a convolution, for ``converted_plans``."""
    setattr(module, _BY_CONVERSION, plan)


def converted_plans(model: nn.Module) -> dict[str, LayerPlan]:
    """Return the plans of all layers that replaced a convolution, by name.

    Layers of basis filters that a network was built with are not among them.
    """
    found = ((item.name, vars(item.module).get(_BY_CONVERSION)) for item in find_modules(model).values())
    return {name: plan for name, plan in found if plan is not None}


def _fit_(layer: CompositeConv, conv: nn.Module, name: str) -> float:
    if not adaptation_of(conv).fits:
        raise ConversionError(
            f"init='fit' is not supported for layer {name!r}, a {type(conv).__name__}, which transforms its weights; "
            f"use a rule, or protect it: protect=[{name!r}]"
        )
    weight = kernel_of(conv).detach()
    bias = conv.bias.detach() if isinstance(conv.bias, torch.Tensor) else None
    fitted = fit_parameters(layer.plan, weight, bias)
    with torch.no_grad():
        for targets, values in zip(layer.stage_parameters(), fitted, strict=True):
            for (kernel, own_bias), (new_kernel, new_bias) in zip(targets, values, strict=True):
                kernel.copy_(new_kernel)
                if own_bias is not None and new_bias is not None:
                    own_bias.copy_(new_bias)
    return relative_residual(layer.plan, fitted, weight)
