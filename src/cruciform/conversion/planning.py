"""Plan a conversion: apply the rules to every convolution."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from torch import nn

from cruciform.conversion.conversion_report import ConversionReport, LayerChange
from cruciform.conversion.eligible import is_convolution, name_in_short, refusal, why_skip
from cruciform.conversion.holders import hidden_references, shared_memory
from cruciform.conversion.objections import objection
from cruciform.conversion.surgery import FoundModule, find_modules, refuse_wrapper
from cruciform.conversion.where import ConvLayer, Where, everywhere, matches
from cruciform.errors import ConversionError, PlanError
from cruciform.measure.macs import profile
from cruciform.measure.network_profile import LayerCount
from cruciform.nn.inspect import refuse_unready, spec_of
from cruciform.plan import LayerPlan
from cruciform.registry import did_you_mean
from cruciform.schemes import Scheme, find_scheme, make_plan

SchemeChoice = str | Scheme | Mapping[str, str | Scheme]


@dataclass(frozen=True)
class Rules:
    """Rules of a conversion.

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


def plan_by(model: nn.Module, rules: Rules) -> ConversionReport:
    """Return the conversion table of a network by rules; raise if it can't be converted so."""
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
            raise ConversionError(
                f"a scheme is a name such as 'lr', or a function from ConvSpec to LayerPlan; got {scheme!r}"
            )
    rows: list[LayerChange] = []
    for index, item in enumerate(found):
        count = counts.get(item.name) if total is not None else None
        rows.append(_plan_layer(item, index, len(found), rules, (count, total)))
    _refuse_entangled(model, {item.name: item.module for item, row in zip(found, rows, strict=True) if row.plan})
    params = sum(p.numel() for p in model.parameters())
    return ConversionReport(tuple(rows), params, counted, idle=tuple(_idle_patterns(rules, rows)))


def _refuse_idle_patterns(rules: Rules, names: Sequence[str]) -> None:
    """Raise if a pattern matches no convolution: it is a typo, and would be ignored silently."""
    if isinstance(rules.protect, str):
        raise ConversionError(f"protect must be a list of patterns: protect=[{rules.protect!r}]")
    patterns = [*rules.protect, *(rules.scheme if isinstance(rules.scheme, Mapping) else ())]
    for pattern in patterns:
        if not matches(tuple(names), (pattern,)):
            raise ConversionError(
                f"the pattern {pattern!r} matches no convolution.{did_you_mean(pattern, names)} "
                f"There are {len(names)}, such as {', '.join(map(repr, names[:3]))}"
            )


def _idle_patterns(rules: Rules, rows: Sequence[LayerChange]) -> Iterator[str]:
    """Yield a warning for each pattern that matches convolutions without any effect."""
    schemes = list(rules.scheme) if isinstance(rules.scheme, Mapping) else []
    for source, patterns in (("protect", list(rules.protect)), ("the scheme", schemes)):
        for index, pattern in enumerate(patterns):
            matched = [row for row in rows if matches(row.names, (pattern,))]
            open_to_choice = [row for row in matched if row.action != "skipped"]
            idle = f"the pattern {pattern!r} of {source} changes nothing"
            if not open_to_choice:
                example = f"{matched[0].names[0] or 'the network'}: {matched[0].reason}"
                yield f"{idle}, since all convolutions that it matches are skipped anyway ({example})"
            # A last pattern for all the rest is no slip where nothing is left.
            elif pattern != "*" and source != "protect" and _all_taken(open_to_choice, patterns[:index]):
                yield f"{idle}, since earlier patterns match the same convolutions; the first match counts"


def _all_taken(rows: Sequence[LayerChange], patterns: Sequence[str]) -> bool:
    return all(matches(row.names, tuple(patterns)) for row in rows)


def _refuse_entangled(model: nn.Module, replaced: Mapping[str, nn.Module]) -> None:
    """Raise if a convolution that is to be replaced, or its weights, are referenced elsewhere."""
    for name, what, place in hidden_references(model, replaced):
        raise ConversionError(
            f"{what or 'the network'} is also referenced in {place}, where it can't be replaced, so the network would "
            f"keep using the old convolution; protect it with protect=[{name!r}]"
        )
    for name, other in shared_memory(model, replaced):
        first, second = sorted((name, other))
        raise ConversionError(
            f"{first} and {second} share a parameter or its memory, but their replacements would not; "
            f"protect them with protect={[each for each in (first, second) if each in replaced]!r}"
        )


def _plan_layer(
    item: FoundModule, index: int, of: int, rules: Rules, counts: tuple[LayerCount | None, int | None]
) -> LayerChange:
    conv, names, (count, total) = item.module, tuple(item.names), counts
    params = sum(p.numel() for p in conv.parameters())
    macs = (count.macs if count else 0) if total is not None else None
    shown = name_in_short(conv)
    row = LayerChange(names, shown, "skipped", why_skip(conv) or "", None, params, params, macs, macs)
    if row.reason:
        return row
    spec = spec_of(conv)
    share = macs / total if total and macs is not None else None
    layer = ConvLayer(names, spec, index, of, 0.0 if total == 0 else share)
    kept = _why_keep(layer, rules)
    if kept:
        return replace(row, action="kept", reason=kept)
    refused = refusal(conv)
    if refused:
        raise ConversionError(f"{names[0] or 'the network'} can't be converted: {refused}; or protect it")
    try:
        plan = make_plan(spec, _scheme_for(names, rules.scheme) or "full")
    except PlanError as error:
        return replace(row, reason=str(error))
    if not isinstance(plan, LayerPlan):
        raise ConversionError(f"a scheme must return a LayerPlan; got {type(plan).__name__}")
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
        return f"excluded by where: {getattr(where, 'text', 'a custom function')}"
    if _scheme_for(layer.names, rules.scheme) is None:
        return "no scheme pattern matches its name"
    return None


def _scheme_for(names: tuple[str, ...], scheme: SchemeChoice) -> str | Scheme | None:
    if not isinstance(scheme, Mapping):
        return scheme
    return next((chosen for pattern, chosen in scheme.items() if matches(names, (pattern,))), None)
