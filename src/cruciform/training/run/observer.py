"""Observers of a run: log, TensorBoard, progress bar, cluster engine. The loop calls them on every event."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from cruciform.errors import RunError


class Plan(NamedTuple):
    """The extent of a run when it starts or resumes.

    Attributes:
        run: Its directory.
        step: The step that it starts from.
        steps: The number of steps in all.
        steps_per_epoch: Steps in an epoch.
        samples: Training samples in an epoch.
        world: Number of processes.
        conditions: What bit-identical results depend on besides: precision, threads, versions; None where unknown.
    """

    run: Path
    step: int
    steps: int
    steps_per_epoch: int
    samples: int
    world: int
    conditions: Mapping[str, Any] | None = None


class StepRecord(NamedTuple):
    """The result of a step.

    Attributes:
        step: Steps taken so far, including this one.
        loss: Mean loss of the leading rank's samples.
        lr: Learning rate.
        grad_norm: Norm of the gradient before clipping.
        samples: Samples of all ranks.
        numbers: Indices of this rank's samples.
    """

    step: int
    loss: float
    lr: float
    grad_norm: float
    samples: int
    numbers: tuple[int, ...]


class Observer:
    """Base of observers. All methods do nothing; override those that you need."""

    def on_start(self, plan: Plan) -> None:
        """Training starts or resumes."""

    def on_step(self, record: StepRecord) -> None:
        """A step was taken."""

    def on_evaluation(self, done: int, of: int) -> None:
        """``done`` of ``of`` batches of an evaluation are done."""

    def on_epoch(self, epoch: int, step: int, figures: dict[str, Any]) -> None:
        """An epoch has ended; ``figures`` has its losses and metrics."""

    def on_checkpoint(self, step: int, path: Path | None, figures: dict[str, Any]) -> None:
        """A checkpoint was saved. Called in all processes; ``path`` is None in those that did not write it."""

    def on_low_rank(self, step: int, figures: dict[str, Any]) -> None:
        """The dense network has become low-rank; ``figures`` has its layers and how well they were fitted."""

    def on_notice(self, message: str, step: int) -> None:
        """Something happened that users should know."""

    def on_end(self, state: str, step: int, error: BaseException | None) -> None:
        """The run has ended: ``done``, ``interrupted`` or ``failed``."""


class ObserverGroup(Observer):
    """Calls several observers in order."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = tuple(observers)

    def on_start(self, plan: Plan) -> None:
        """Call all."""
        for observer in self._observers:
            observer.on_start(plan)

    def on_step(self, record: StepRecord) -> None:
        """Call all."""
        for observer in self._observers:
            observer.on_step(record)

    def on_evaluation(self, done: int, of: int) -> None:
        """Call all."""
        for observer in self._observers:
            observer.on_evaluation(done, of)

    def on_epoch(self, epoch: int, step: int, figures: dict[str, Any]) -> None:
        """Call all."""
        for observer in self._observers:
            observer.on_epoch(epoch, step, figures)

    def on_checkpoint(self, step: int, path: Path | None, figures: dict[str, Any]) -> None:
        """Call all."""
        for observer in self._observers:
            observer.on_checkpoint(step, path, figures)

    def on_low_rank(self, step: int, figures: dict[str, Any]) -> None:
        """Call all."""
        for observer in self._observers:
            observer.on_low_rank(step, figures)

    def on_notice(self, message: str, step: int) -> None:
        """Call all."""
        for observer in self._observers:
            observer.on_notice(message, step)

    def on_end(self, state: str, step: int, error: BaseException | None) -> None:
        """Call all. Where the run failed, errors of observers are dropped: they must not hide why it did."""
        for observer in self._observers:
            # On a full disk the end can't be logged, nor without the lock.
            with suppress(*((OSError, RunError) if error else ())):
                observer.on_end(state, step, error)
