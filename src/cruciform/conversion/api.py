"""Converts a network: ``convert`` a copy of it, ``convert_`` itself, ``plan_conversion`` as a dry run."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import nn

from cruciform.conversion.eligible import adaptation_of, in_short, is_convolution, refusal, why_skip
from cruciform.conversion.fit import fit_parameters, relative_residual
from cruciform.conversion.objections import objection
from cruciform.conversion.report import ConversionReport, LayerChange
from cruciform.conversion.surgery import Found, find_modules, hidden_references, refuse_wrapper, replace_modules_
from cruciform.conversion.verify import verify
from cruciform.conversion.where import ConvLayer, Where, everywhere, matches
from cruciform.errors import ConversionError, CruciformError, PlanError, first_line, told_as
from cruciform.measure.macs import LayerCount, profile
from cruciform.nn.activations import gain_squared
from cruciform.nn.composite import CompositeConv
from cruciform.nn.init import Surroundings, initialise_layer_
from cruciform.nn.initialise import AUTO, rule_for
from cruciform.nn.inspect import plan_of, refuse_unready, spec_of
from cruciform.plan import LayerPlan
from cruciform.registry import did_you_mean
from cruciform.schemes import Scheme, find_scheme, make_plan
from cruciform.words import listed

SchemeChoice = str | Scheme | Mapping[str, str | Scheme]
FIT = "fit"
_BY_CONVERSION = "_replaces_convolution_by"
_PLAIN_ATTRIBUTES = vars(nn.Conv2d(1, 1, 1, device="meta")).keys()


class Conversion(NamedTuple):
    """A converted network and the report of its conversion."""

    model: nn.Module
    report: ConversionReport


@dataclass(frozen=True)
class Rules:
    """What to convert into what.

    Attributes:
        scheme: One for all, or from name patterns to schemes, of which the first that matches counts.
        where: Which convolutions.
        protect: Name patterns of convolutions to keep.
        input_size: Channels and spatial size of one input, to count multiply-accumulates by.
    """

    scheme: SchemeChoice = "lr"
    where: Where | None = None
    protect: Sequence[str] = ()
    input_size: Sequence[int] | None = None


def plan_conversion(
    model: nn.Module,
    scheme: SchemeChoice = "lr",
    *,
    where: Where | None = None,
    protect: Sequence[str] = (),
    input_size: Sequence[int] | None = None,
) -> ConversionReport:
    """Says what a conversion would do, and changes nothing.

    Args:
        model: The network.
        scheme: One for all, or from name patterns to schemes, of which the first that matches counts.
        where: Which convolutions, by the predicates of ``cruciform.conversion.where``; all where left out.
        protect: Name patterns of convolutions to keep.
        input_size: Channels and spatial size of one input, ``(3, 224, 224)``, to count multiply-accumulates by.
    """
    return _plan(model, Rules(scheme, where, protect, input_size))


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
    """Converts a copy of a network; the arguments are those of ``convert_``."""
    refuse_unready(model)
    refuse_wrapper(model)
    rules = Rules(scheme, where, protect, input_size)
    with told_as(ConversionError, lambda error: _why_no_copy(model, error)):
        own = copy.deepcopy(model)
    return apply_conversion_(own, rules, init=init, activation=activation)


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
    """Converts a network in place: its convolutions become layers of basis filters, initialised to train.

    Converting again changes nothing. Where the network is itself a convolution, its replacement is returned.

    Args:
        model: The network.
        scheme: As for ``plan_conversion``.
        init: A rule of initialisation; ``"auto"``: the one that suits the network, as ``initialise_`` has it; or
            ``"fit"``: the weights that reproduce the trained ones best.
        activation: The non-linearity behind the convolutions, by name, for the rule.
        where: As for ``plan_conversion``.
        protect: As for ``plan_conversion``.
        input_size: As for ``plan_conversion``; the network is run on paper then before and after, and must return the
            same shapes and cost what the report says.
    """
    rules = Rules(scheme, where, protect, input_size)
    return apply_conversion_(model, rules, init=init, activation=activation)


def apply_conversion_(
    model: nn.Module,
    rules: Rules,
    *,
    init: str = AUTO,
    activation: str | None = "relu",
    generator: torch.Generator | None = None,
) -> Conversion:
    """Plans a conversion and carries it out, in place."""
    init = FIT if init == FIT else rule_for(model, init, besides=[FIT])
    gain_squared(activation)  # an unknown one is refused also where nothing asks for it
    report = _plan(model, rules)
    found = {item.name: item for item in find_modules(model).values()}
    old: dict[int, nn.Module] = {}
    replacements: dict[int, nn.Module] = {}
    rows: list[LayerChange] = []
    for row in report.layers:
        if row.plan is None:
            rows.append(row)
            continue
        conv = found[row.names[0]].module
        layer = build_layer(conv, row.plan)
        if init == FIT:
            rows.append(replace(row, residual=_fit_(layer, conv, row.names[0])))
        else:
            around = Surroundings(activation)
            initialise_layer_(row.plan, layer.stage_parameters(), rule=init, around=around, generator=generator)
            rows.append(row)
        old[id(conv)], replacements[id(conv)] = conv, finish_layer(layer, conv)
    converted = replace_modules_(model, replacements)
    try:
        return Conversion(converted, verify(converted, replace(report, layers=tuple(rows), init=init)))
    except CruciformError:
        replace_modules_(converted, {id(new): old[identity] for identity, new in replacements.items()})
        raise


def _why_no_copy(model: nn.Module, error: Exception) -> str:
    computed = [
        name or "the network"
        for name, module in model.named_modules()
        if any(isinstance(value, torch.Tensor) and not value.is_leaf for value in vars(module).values())
    ]
    if not computed:
        return f"the network can't be copied ({first_line(error)}); convert_ changes it in place"
    return (
        f"the network can't be copied: {listed(computed)} computes its weight anew at each step (the older weight norm "
        "or spectral norm, pruning). Remove that first, or convert in place with convert_"
    )


def build_layer(conv: nn.Module, plan: LayerPlan) -> CompositeConv:
    """Returns the bare layer of a plan, where the convolution's weights live and of their type."""
    weight: torch.Tensor = conv.weight  # type: ignore[assignment]
    return CompositeConv(plan, device=weight.device, dtype=weight.dtype)


def finish_layer(layer: CompositeConv, conv: nn.Module) -> nn.Module:
    """Gives a layer what its convolution has besides its weights: mode, frozen parameters, kind."""
    weight: torch.Tensor = conv.weight  # type: ignore[assignment]
    bias: torch.Tensor | None = conv.bias  # type: ignore[assignment]
    for stage in layer.stage_parameters():
        for kernel, own_bias in stage:
            kernel.requires_grad_(weight.requires_grad)
            if own_bias is not None and bias is not None:
                own_bias.requires_grad_(bias.requires_grad)
    finished = adaptation_of(conv).finish(layer, conv).train(conv.training)
    for name in vars(conv).keys() - vars(finished).keys() - _PLAIN_ATTRIBUTES:
        setattr(finished, name, vars(conv)[name])  # what its owner has written on it, for an optimiser perhaps
    mark_converted_(finished, layer.plan)
    return finished


def mark_converted_(module: nn.Module, plan: LayerPlan) -> None:
    """Writes on a module that it stands where a convolution stood, for ``converted_plans``."""
    setattr(module, _BY_CONVERSION, plan)


def converted_plans(model: nn.Module) -> dict[str, LayerPlan]:
    """Returns the plans of all layers that a conversion put where they are, by their first names.

    Layers of basis filters that a network was built with are not among them.
    """
    found = ((item.name, vars(item.module).get(_BY_CONVERSION)) for item in find_modules(model).values())
    return {name: plan for name, plan in found if plan is not None}


def _fit_(layer: CompositeConv, conv: nn.Module, name: str) -> float:
    if not adaptation_of(conv).fits:
        raise ConversionError(
            f"init='fit' knows no fit for layer {name!r}, a {type(conv).__name__}, which computes its weights itself; "
            f"use a rule, or leave it out: protect=[{name!r}]"
        )
    weight: torch.Tensor = conv.weight.detach()  # type: ignore[operator]
    bias = conv.bias.detach() if isinstance(conv.bias, torch.Tensor) else None
    fitted = fit_parameters(layer.plan, weight, bias)
    with torch.no_grad():
        for targets, values in zip(layer.stage_parameters(), fitted, strict=True):
            for (kernel, own_bias), (new_kernel, new_bias) in zip(targets, values, strict=True):
                kernel.copy_(new_kernel)
                if own_bias is not None and new_bias is not None:
                    own_bias.copy_(new_bias)
    return relative_residual(layer.plan, fitted, weight)


def _plan(model: nn.Module, rules: Rules) -> ConversionReport:
    refuse_unready(model)
    refuse_wrapper(model)
    counted = profile(model, rules.input_size) if rules.input_size is not None else None
    counts = {row.name: row for row in counted.layers} if counted else {}
    total = counted.macs if counted else None
    found = [item for item in find_modules(model).values() if is_convolution(item.module)]
    _refuse_idle_patterns(rules, [name for item in found for name in item.names])
    for scheme in rules.scheme.values() if isinstance(rules.scheme, Mapping) else (rules.scheme,):
        if isinstance(scheme, str):  # what no layer can take is a slip; what this layer can't is its reason
            find_scheme(scheme)
        elif not callable(scheme):
            raise ConversionError(f"a scheme is a name, as 'lr', or a function from ConvSpec to a plan; not {scheme!r}")
    rows: list[LayerChange] = []
    for index, item in enumerate(found):
        count = counts.get(item.name) if total is not None else None
        rows.append(_plan_layer(item, index, len(found), rules, (count, total)))
    _refuse_entangled(model, {id(i.module): i for i, row in zip(found, rows, strict=True) if row.plan})
    params = sum(p.numel() for p in model.parameters())
    return ConversionReport(tuple(rows), params, counted)


def _refuse_idle_patterns(rules: Rules, names: Sequence[str]) -> None:
    """Raises where a pattern matches no convolution: it is a slip, and would be ignored in silence."""
    if isinstance(rules.protect, str):
        raise ConversionError(f"protect is a list of patterns: protect=[{rules.protect!r}]")
    patterns = [*rules.protect, *(rules.scheme if isinstance(rules.scheme, Mapping) else ())]
    for pattern in patterns:
        if not matches(tuple(names), (pattern,)):
            raise ConversionError(
                f"the pattern {pattern!r} matches no convolution.{did_you_mean(pattern, names)} "
                f"There are {len(names)}, such as {', '.join(map(repr, names[:3]))}"
            )


def _refuse_entangled(model: nn.Module, replaced: Mapping[int, Found]) -> None:
    """Raises where something besides its places holds on to a convolution that is to be replaced, or to its weights."""
    for name, place in hidden_references(model, {identity: item.name for identity, item in replaced.items()}):
        raise ConversionError(
            f"{name} is also kept in {place}, where a replacement would not reach it, so the network would go on "
            f"using the old convolution; protect it with protect=[{name!r}]"
        )
    owners: dict[int, str] = {}
    for name, module in model.named_modules():
        for parameter in module.parameters(recurse=False):
            other = owners.setdefault(id(parameter), name)
            tied = [n for n in (other, name) if other != name and id(model.get_submodule(n)) in replaced]
            if tied:
                raise ConversionError(
                    f"{other} and {name} share a parameter, which their replacements would not; "
                    f"protect them with protect={sorted({other, name})!r}"
                )


def _plan_layer(
    item: Found, index: int, of: int, rules: Rules, counts: tuple[LayerCount | None, int | None]
) -> LayerChange:
    conv, names, (count, total) = item.module, tuple(item.names), counts
    params = sum(p.numel() for p in conv.parameters())
    macs = (count.macs if count else 0) if total is not None else None
    old = plan_of(conv)
    shown = in_short(old.spec) if old else type(conv).__name__
    row = LayerChange(names, shown, "skipped", why_skip(conv) or "", None, params, params, macs, macs)
    if row.reason:
        return row
    spec = spec_of(conv)  # type: ignore[arg-type]
    share = macs / total if total and macs is not None else None
    layer = ConvLayer(names, spec, index, of, 0.0 if total == 0 else share)
    kept = _why_keep(layer, rules)
    if kept:
        return replace(row, action="kept", reason=kept)
    refused = refusal(conv)
    if refused:
        raise ConversionError(f"{names[0] or 'the network'} can't be converted: {refused}; or protect it by its name")
    try:
        plan = make_plan(spec, _scheme_for(names, rules.scheme) or "full")
    except PlanError as error:
        return replace(row, reason=str(error))
    if not isinstance(plan, LayerPlan):
        raise ConversionError(f"a scheme returns a LayerPlan for a ConvSpec; it returned {type(plan).__name__}")
    if plan.is_dense:
        return replace(row, action="kept", reason="the scheme keeps it dense")
    after = sum(batch * plan.macs_from_input(size) for batch, *size in count.inputs) if count else macs
    extra = params - spec.params  # what a known kind of convolution owns besides
    params_after = plan.params + _extra(plan, extra)
    costs = (params, params_after) if macs is None or after is None else (macs, after)
    return replace(
        row,
        action="replaced",
        reason=objection(plan, *costs),
        plan=plan,
        params_after=params_after,
        macs_after=after,
    )


def _extra(plan: LayerPlan, extra: int) -> int:
    """A gain for each filter is a gain for each filter of every stage."""
    return sum(stage.filters for stage in plan.stages) if extra else 0


def _why_keep(layer: ConvLayer, rules: Rules) -> str | None:
    if matches(layer.names, tuple(rules.protect)):
        return "protected"
    where = rules.where or everywhere()
    if not where(layer):
        return f"not among those asked for: {getattr(where, 'text', 'by a function of yours')}"
    if _scheme_for(layer.names, rules.scheme) is None:
        return "no pattern of the scheme matches its name"
    return None


def _scheme_for(names: tuple[str, ...], scheme: SchemeChoice) -> str | Scheme | None:
    if not isinstance(scheme, Mapping):
        return scheme
    return next((chosen for pattern, chosen in scheme.items() if matches(names, (pattern,))), None)
