"""Examines one network: is there something to convert, does it convert, are its outputs of the same shape?

On the meta device, where nothing is computed; where a network can't be run there, on real tensors. What is asked for
in addition, the backward pass, needs real tensors.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import nn

from cruciform.conversion.convert import convert
from cruciform.errors import CruciformError, first_line
from cruciform.measure.trace import tensors_in
from cruciform.nn.composite import CompositeConv
from cruciform.nn.inspect import PLAIN_CONVOLUTIONS
from cruciform.sources.build_network import build_network

LARGEST_REAL = 400_000_000  # parameters of a network that is still run on real tensors
LARGEST_BACKWARD = 60_000_000  # and of one whose backward pass is run


@dataclass
class Finding:
    """The result for one network.

    Attributes:
        reference: Source and name.
        eligible: Whether it has a convolution with groups=1 and two or more extents above 1.
        converted: Whether at least one convolution was replaced.
        same_shapes: Whether all outputs have the same shapes as before.
        backward: Whether every replaced layer got a finite gradient; None where it was not asked for.
        params: Its parameters.
        macs_before: Its multiply-accumulates.
        macs_after: Those of the converted network, counted again.
        replaced: How many convolutions were replaced.
        skipped: How many could not be, by their reason.
        failure: What went wrong, where something did.
        notes: What else a reader must know.
    """

    reference: str
    eligible: bool = False
    converted: bool = False
    same_shapes: bool = False
    backward: bool | None = None
    params: int = 0
    macs_before: int | None = None
    macs_after: int | None = None
    replaced: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    failure: str = ""
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as plain data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Finding":
        """Return the finding that ``to_dict`` described."""
        return cls(**data)


def examine(reference: str, scheme: str, *, backward: bool = False) -> Finding:
    """Examine one network; what goes wrong is part of the finding."""
    finding = Finding(reference)
    try:
        _examine(finding, scheme, on_meta=True)
    except Exception as error:
        first = _said(error)
        if finding.params > LARGEST_REAL:
            finding.failure = f"on the meta device: {first}; too large for real tensors"
        else:
            finding = Finding(reference, notes=[f"run on real tensors, since it failed on the meta device: {first}"])
            try:
                _examine(finding, scheme, on_meta=False)
            except Exception as again:
                finding.failure = _said(again)
    if backward and finding.same_shapes and finding.params < LARGEST_BACKWARD:
        try:
            finding.backward = _gradients_are_finite(reference, scheme)
        except Exception as error:
            finding.backward = False
            finding.failure = f"backward: {_said(error)}"
    return finding


def _examine(finding: Finding, scheme: str, *, on_meta: bool) -> None:
    with torch.device("meta") if on_meta else nullcontext():
        model, size = build_network(finding.reference)
    model.eval()
    finding.params = sum(p.numel() for p in model.parameters())
    finding.eligible = any(is_eligible(module) for module in model.modules())
    if not finding.eligible:
        return
    _, report = convert(model, scheme, input_size=size)
    finding.macs_before = report.macs_before
    finding.replaced = report.replaced
    finding.converted = finding.replaced > 0
    for row in report.layers:
        if row.action == "skipped":
            reason = row.reason.partition(":")[0] if row.reason[0].isdigit() else row.reason.partition(" (")[0]
            finding.skipped[reason] = finding.skipped.get(reason, 0) + 1
    if not report.counted_after:
        finding.failure = "nothing was converted: " + ", ".join(finding.skipped)
        return
    finding.macs_after = report.counted_after.macs
    finding.notes += report.counted_after.notes
    finding.same_shapes = True  # or it would not have been converted


def is_eligible(module: nn.Module) -> bool:
    """Return whether a module is a convolution with groups=1 and a kernel longer than 1 along two axes or more."""
    return (
        isinstance(module, PLAIN_CONVOLUTIONS)
        and module.groups == 1
        and sum(extent > 1 for extent in module.kernel_size) >= 2
    )


def _gradients_are_finite(reference: str, scheme: str) -> bool:
    torch.manual_seed(0)
    model, size = build_network(reference)
    converted, report = convert(model, scheme)
    output = converted.train()(torch.randn(2, *size))
    sum(tensor.float().square().mean() for tensor in tensors_in(output) if tensor.requires_grad).backward()  # type: ignore[union-attr]
    layers = [module for module in converted.modules() if isinstance(module, CompositeConv)]
    gradients = [p.grad for layer in layers for p in layer.parameters()]
    return report.replaced > 0 and all(g is not None and bool(g.isfinite().all()) for g in gradients)


def _said(error: Exception) -> str:
    text = first_line(error)[:300]
    return text if isinstance(error, CruciformError) else f"{type(error).__name__}: {text}"
