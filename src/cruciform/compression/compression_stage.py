"""The steps on the way from the original network to the result."""

from dataclasses import dataclass

ORIGINAL, FITTED, TUNED, INT8 = "original", "fitted", "fine-tuned", "int8"


@dataclass(frozen=True)
class CompressionStage:
    """A step on the way from the original to the result.

    Attributes:
        name: ``original``, ``fitted``, ``fine-tuned`` or ``int8``.
        seconds: The time that it took.
        evaluation: What ``evaluate`` said of the network then; None where it was not given.
        kept: Whether the result has it; fine-tuning that made the evaluation worse is undone.
    """

    name: str
    seconds: float = 0.0
    evaluation: float | None = None
    kept: bool = True
