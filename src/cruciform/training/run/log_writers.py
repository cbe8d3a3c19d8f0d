"""Observers that write files: the log, the samples of each step, and TensorBoard files."""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from cruciform.errors import MissingExtraError, first_line
from cruciform.measure.record import versions
from cruciform.training.run.journal import Journal
from cruciform.training.run.observer import Observer, Plan, StepRecord


class LogObserver(Observer):
    """Writes the log of a run.

    Args:
        path: The file.
        every: Steps between two lines.
        check: Called before each line; raises where the process may no longer write.
    """

    def __init__(self, path: Path, every: int, check: Callable[[], None] = lambda: None) -> None:
        self._journal = Journal(path, check)
        self._every = every
        self._since: tuple[float, int] = (time.monotonic(), 0)

    def on_start(self, plan: Plan) -> None:
        """Log the start, with versions."""
        figures = {name: value for name, value in plan._asdict().items() if name != "run"}
        self._journal.write("start", **figures, versions=versions())
        self._since = (time.monotonic(), 0)

    def on_step(self, record: StepRecord) -> None:
        """Log every n-th step."""
        start, samples = self._since
        samples += record.samples
        self._since = (start, samples)
        if record.step % self._every == 0:
            speed = samples / max(1e-9, time.monotonic() - start)
            self._journal.write(
                "step",
                step=record.step,
                loss=record.loss,
                lr=record.lr,
                grad_norm=record.grad_norm,
                images_per_second=round(speed, 1),
            )
            self._since = (time.monotonic(), 0)

    def on_epoch(self, epoch: int, step: int, figures: dict[str, Any]) -> None:
        """Log the metrics."""
        self._journal.write("epoch", step=step, epoch=epoch, **figures)
        self._since = (time.monotonic(), 0)  # exclude the time of the evaluation

    def on_checkpoint(self, step: int, path: Path | None, figures: dict[str, Any]) -> None:
        """Log the checkpoint."""
        self._journal.write("checkpoint", step=step)

    def on_low_rank(self, step: int, figures: dict[str, Any]) -> None:
        """Log the switch."""
        self._journal.write("low_rank", step=step, **figures)
        self._since = (time.monotonic(), 0)  # exclude the time of the fit

    def on_notice(self, message: str, step: int) -> None:
        """Log the message."""
        self._journal.write("notice", step=step, message=message)

    def on_end(self, state: str, step: int, error: BaseException | None) -> None:
        """Log the end, and the error."""
        why = {"error": type(error).__name__, "reason": first_line(error)} if error else {}
        try:
            self._journal.write("end", step=step, state=state, **why)
        finally:
            self._journal.close()


class SampleObserver(Observer):
    """Logs the sample indices of every step, to verify that none was skipped or seen twice.

    Args:
        folder: Gets one file per process.
        rank: Of this process.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        self._path, self._rank = folder / f"{uuid4().hex}.jsonl", rank
        self._journal: Journal | None = None

    def on_start(self, plan: Plan) -> None:
        """Create the file: not before, or one rank would write into a directory that another has yet to check."""
        self._journal = Journal(self._path)

    def on_step(self, record: StepRecord) -> None:
        """Log the indices."""
        if self._journal:
            self._journal.write("samples", step=record.step, rank=self._rank, numbers=record.numbers)

    def on_end(self, state: str, step: int, error: BaseException | None) -> None:
        """Close the file."""
        if self._journal:
            self._journal.close()


class TensorBoardObserver(Observer):
    """Writes TensorBoard files. An error with them ends the writing, not the run."""

    def __init__(self, folder: Path, every: int) -> None:
        try:
            from torch.utils.tensorboard.writer import SummaryWriter
        except ImportError as error:
            raise MissingExtraError(
                f"TensorBoard is not installed ({error}): pip install 'cruciform[train]', or set log.tensorboard=false"
            ) from error
        self._make: Any = lambda step: SummaryWriter(str(folder), purge_step=step)
        self._writer: Any = None
        self._every = every

    def on_start(self, plan: Plan) -> None:
        """Open the files, and drop the events after the step that the run resumes from."""
        try:
            self._writer = self._make(plan.step + 1)
        except OSError:
            self._writer = _NoWriter()

    def on_step(self, record: StepRecord) -> None:
        """Write loss, learning rate and gradient norm."""
        if record.step % self._every == 0:
            self._write({"loss": record.loss, "lr": record.lr, "grad_norm": record.grad_norm}, "step", record.step)

    def on_epoch(self, epoch: int, step: int, figures: dict[str, Any]) -> None:
        """Write the metrics."""
        self._write({name: value for name, value in figures.items() if isinstance(value, float)}, "epoch", step)

    def on_end(self, state: str, step: int, error: BaseException | None) -> None:
        """Close the files."""
        if self._writer is not None:
            with suppress(OSError):
                self._writer.close()

    def _write(self, values: dict[str, float], group: str, step: int) -> None:
        try:
            for name, value in values.items():
                self._writer.add_scalar(f"{group}/{name}", value, step)
        except OSError:
            self._writer = _NoWriter()


class _NoWriter:
    """Replaces a writer that can't write any more."""

    def add_scalar(self, name: str, value: float, step: int) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
