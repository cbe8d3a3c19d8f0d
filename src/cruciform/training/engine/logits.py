"""The logits in what a network returns."""

from typing import Any

from torch import Tensor

from cruciform.errors import ShapeError


def main_logits(output: Any, classes: int | None = None) -> Tensor:
    """Return the logits of the main head; raise where the output is not that of a classifier.

    Args:
        output: Of the network: logits, or a tuple of them, those of auxiliary heads after the main ones.
        classes: The number of classes of the data; None: any.
    """
    logits = output[0] if isinstance(output, tuple) else output
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ShapeError(f"a classifier must return logits of shape (batch, classes), not {shape}")
    if classes not in (None, logits.shape[1]):
        raise ShapeError(
            f"the network has {logits.shape[1]} outputs, but the data has {classes} classes. Build it for {classes} "
            f"classes; for a network by name set model.options.num_classes={classes} (MONAI: out_channels)"
        )
    return logits
