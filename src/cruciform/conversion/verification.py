"""Holds a converted network to its report: it must run, return what it returned, and cost what was promised."""

from collections.abc import Mapping
from dataclasses import replace

from torch import nn

from cruciform.conversion.conversion_report import ConversionReport, Verification
from cruciform.conversion.trial import MODES, Trial, try_out
from cruciform.errors import ConversionError, CountError, ShapeError, first_line
from cruciform.measure.macs import profile


def verify_conversion(
    model: nn.Module, before: Trial, *, new: Mapping[int, str], old: Mapping[int, str]
) -> Verification:
    """Runs a converted network as it was run before, in every mode in which it ran.

    Args:
        model: The converted network.
        before: How it ran before.
        new: The identities of the layers that are new in it, with their names.
        old: The identities of the parameters that are not in it any more, with the names of their layers.

    Raises:
        ConversionError: It does not run any more, returns something of another shape, or uses an old parameter.
    """
    after = try_out(model, before.input_size, guessed=before.guessed, old=old)
    for mode, outputs in before.outputs.items():
        if mode in after.failures:
            raise ConversionError(_why_it_fails(after.failures[mode], mode, new)) from after.failures[mode]
        if after.outputs.get(mode) != outputs:
            raise ConversionError(f"outputs of {outputs} became {after.outputs.get(mode)} by the conversion")
    unused = [name for name in new.values() if name and not any(key.startswith(f"{name}.") for key in after.used)]
    failed = [f"in {mode} mode it does not run: {first_line(error)}" for mode, error in before.failures.items()]
    modes = tuple(mode for mode in MODES if mode in before.outputs)
    return Verification(before.input_size, before.guessed, modes, tuple(unused), "; ".join(failed))


def count_again(model: nn.Module, report: ConversionReport) -> ConversionReport:
    """Counts a network after its conversion, where it was counted before, and returns the report with that.

    Raises:
        ConversionError: It does not run any more, or returns something of another shape.
        CountError: It costs something else than the report says.
    """
    if report.counted is None or not report.replaced:
        return report
    try:
        after = profile(model, report.counted.input_size)
    except ShapeError as error:
        raise ConversionError(f"once it is converted, {error}") from error
    if after.outputs != report.counted.outputs:
        raise ConversionError(f"outputs of {report.counted.outputs} became {after.outputs} by the conversion")
    if after.macs != report.macs_after:
        raise CountError(
            f"the report promises {report.macs_after:,} multiply-accumulates, the network then has {after.macs:,}. "
            "No report is given, since one of them is wrong (is a layer called as conv.forward(x), which nobody sees?)"
        )
    return replace(report, counted_after=after)


def _why_it_fails(error: BaseException, mode: str, new: Mapping[int, str]) -> str:
    """Names the layer that the network looks into, where it does: it would find other weights there, or none."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, AttributeError) and id(cause.obj) in new:
            name = new[id(cause.obj)]
            return (
                f"the network itself reads {cause.name!r} of {name} in {mode} mode, which no layer of basis filters "
                f"has, so it would not run once {name} is converted; protect it with protect=[{name!r}]"
            )
        cause = cause.__cause__ or cause.__context__
    return f"once it is converted, the network does not run in {mode} mode: {first_line(error)}"
