"""Those who watch a run: a log, TensorBoard, a progress bar, a cluster engine. The loop tells them what happens."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple


class Plan(NamedTuple):
    """What a run is about to do.

    Attributes:
        run: Its directory.
        step: Where it starts.
        steps: Where it ends.
        steps_per_epoch: Steps in an epoch.
        samples: Training samples in an epoch.
        world: Processes that share the work.
        conditions: What equal bits depend on besides: precision, threads, versions; None where it is not known.
    """

    run: Path
    step: int
    steps: int
    steps_per_epoch: int
    samples: int
    world: int
    conditions: Mapping[str, Any] | None = None


class StepRecord(NamedTuple):
    """A step that was taken.

    Attributes:
        step: Steps taken so far, this one included.
        loss: Mean loss of the leading rank's samples.
        rate: Learning rate.
        norm: Of the gradient.
        samples: Samples that all ranks took.
        numbers: Of the samples that this rank took.
    """

    step: int
    loss: float
    rate: float
    norm: float
    samples: int
    numbers: tuple[int, ...]


class Observer:
    """Base of those who watch: told everything, does nothing. Override what you care for."""

    def started(self, plan: Plan) -> None:
        """Training begins."""

    def stepped(self, record: StepRecord) -> None:
        """A step was taken."""

    def evaluating(self, done: int, of: int) -> None:
        """So many batches of an evaluation are done."""

    def finished_epoch(self, epoch: int, step: int, figures: dict[str, Any]) -> None:
        """An epoch has ended; its figures."""

    def saved(self, step: int, path: Path | None, figures: dict[str, Any]) -> None:
        """A checkpoint was written; the path only where it was this process that wrote it. All processes are told."""

    def noticed(self, what: str, step: int) -> None:
        """Something happened that people should know of."""

    def ended(self, state: str, step: int, error: BaseException | None) -> None:
        """The run has ended: done, interrupted or failed, and by what."""
