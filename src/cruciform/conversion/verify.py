"""Holds a converted network to its report: it must run, return what it returned, and cost what was promised."""

from dataclasses import replace

from torch import nn

from cruciform.conversion.report import ConversionReport
from cruciform.errors import ConversionError, CountError, ShapeError
from cruciform.measure.macs import profile
from cruciform.nn.composite import CompositeConv


def verify(model: nn.Module, report: ConversionReport) -> ConversionReport:
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
        raise ConversionError(_why_it_fails(model, error)) from error
    if after.outputs != report.counted.outputs:
        raise ConversionError(f"outputs of {report.counted.outputs} became {after.outputs} by the conversion")
    if after.macs != report.macs_after:
        raise CountError(
            f"the report promises {report.macs_after:,} multiply-accumulates, the network then has {after.macs:,}. "
            "No report is given, since one of them is wrong (is a layer called as conv.forward(x), which nobody sees?)"
        )
    return replace(report, counted_after=after)


def _why_it_fails(model: nn.Module, error: BaseException) -> str:
    """Names the layer that the network looks into, where it does: it would find other weights there, or none."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, AttributeError) and isinstance(cause.obj, CompositeConv):
            name = next((name for name, module in model.named_modules() if module is cause.obj), "")
            return (
                f"the network itself reads {cause.name!r} of {name}, which no layer of basis filters has, so it would "
                f"not run once {name} is converted; protect it with protect=[{name!r}]"
            )
        cause = cause.__cause__ or cause.__context__
    return f"once it is converted, {error}"
