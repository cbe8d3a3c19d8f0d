"""Verify a converted network: it must run, keep its output shapes, and have the MACs of its conversion table."""

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
    """Run a converted network in every mode in which it ran before.

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
            raise ConversionError(
                f"the conversion changed the output shapes from {outputs} to {after.outputs.get(mode)}"
            )
    unused = [name for name in new.values() if name and not any(key.startswith(f"{name}.") for key in after.used)]
    failed = [f"it does not run in {mode} mode: {first_line(error)}" for mode, error in before.failures.items()]
    modes = tuple(mode for mode in MODES if mode in before.outputs)
    return Verification(before.input_size, before.guessed, modes, tuple(unused), "; ".join(failed))


def count_again(model: nn.Module, report: ConversionReport) -> ConversionReport:
    """Count a network after its conversion, where it was counted before, and return the report with that.

    Raises:
        ConversionError: It does not run any more, or returns something of another shape.
        CountError: Its MACs differ from the conversion table.
    """
    if report.counted is None or not report.replaced:
        return report
    try:
        after = profile(model, report.counted.input_size)
    except ShapeError as error:
        raise ConversionError(f"after the conversion, {error}") from error
    if after.outputs != report.counted.outputs:
        raise ConversionError(
            f"the conversion changed the output shapes from {report.counted.outputs} to {after.outputs}"
        )
    if after.macs != report.macs_after:
        raise CountError(
            f"the conversion table has {report.macs_after:,} MACs, but the converted network has {after.macs:,}. One "
            "of them is wrong, so no report is given (is a layer called as conv.forward(x), which hooks do not see?)"
        )
    return replace(report, counted_after=after)


def _why_it_fails(error: BaseException, mode: str, new: Mapping[int, str]) -> str:
    """Return the message for a converted network that fails, with the layer whose attributes it reads."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, AttributeError) and id(cause.obj) in new:
            name = new[id(cause.obj)]
            return (
                f"the network reads the attribute {cause.name!r} of {name} in {mode} mode, which a layer of basis "
                f"filters does not have, so it would not run after the conversion; protect it with protect=[{name!r}]"
            )
        if isinstance(cause, TypeError) and "output_size" in str(cause):
            return (
                f"the network calls a transposed convolution with output_size in {mode} mode, which a layer of basis "
                f"filters does not take; protect it, one of protect={sorted(new.values())!r}"
            )
        cause = cause.__cause__ or cause.__context__
    return f"the converted network does not run in {mode} mode: {first_line(error)}"
