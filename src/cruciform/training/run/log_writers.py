"""The observers that write: the log, which is the truth, what each step saw, and TensorBoard's files."""

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
        check: Called before each line; raises where another process may write now.
    """

    def __init__(self, path: Path, every: int, check: Callable[[], None] = lambda: None) -> None:
        self._journal = Journal(path, check)
        self._every = every
        self._since: tuple[float, int] = (time.monotonic(), 0)

    def started(self, plan: Plan) -> None:
        """Writes what begins, and with which versions."""
        figures = {name: value for name, value in plan._asdict().items() if name != "run"}
        self._journal.write("start", **figures, versions=versions())
        self._since = (time.monotonic(), 0)

    def stepped(self, record: StepRecord) -> None:
        """Writes every so many steps."""
        start, samples = self._since
        samples += record.samples
        self._since = (start, samples)
        if record.step % self._every == 0:
            speed = samples / max(1e-9, time.monotonic() - start)
            self._journal.write(
                "step",
                step=record.step,
                loss=record.loss,
                rate=record.rate,
                norm=record.norm,
                images_per_second=round(speed, 1),
            )
            self._since = (time.monotonic(), 0)

    def finished_epoch(self, epoch: int, step: int, figures: dict[str, Any]) -> None:
        """Writes the figures."""
        self._journal.write("epoch", step=step, epoch=epoch, **figures)
        self._since = (time.monotonic(), 0)  # the time of an evaluation is not that of training

    def saved(self, step: int, path: Path | None, figures: dict[str, Any]) -> None:
        """Writes that a checkpoint exists."""
        self._journal.write("checkpoint", step=step)

    def noticed(self, what: str, step: int) -> None:
        """Writes it down."""
        self._journal.write("notice", step=step, what=what)

    def ended(self, state: str, step: int, error: BaseException | None) -> None:
        """Writes how it ended."""
        why = {"error": type(error).__name__, "reason": first_line(error)} if error else {}
        try:
            self._journal.write("end", step=step, state=state, **why)
        finally:
            self._journal.close()


class SampleObserver(Observer):
    """Writes down which samples each step saw, so that anybody can check that none was lost or seen twice.

    Args:
        folder: Gets a file for every process that takes part.
        rank: Of this one.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        self._path, self._rank = folder / f"{uuid4().hex}.jsonl", rank
        self._journal: Journal | None = None

    def started(self, plan: Plan) -> None:
        """Begins the file: not before, or one rank would write into a directory that another has yet to look at."""
        self._journal = Journal(self._path)

    def stepped(self, record: StepRecord) -> None:
        """Writes the numbers."""
        if self._journal:
            self._journal.write("samples", step=record.step, rank=self._rank, numbers=record.numbers)

    def ended(self, state: str, step: int, error: BaseException | None) -> None:
        """Ends the file."""
        if self._journal:
            self._journal.close()


class TensorBoardObserver(Observer):
    """Writes TensorBoard's files. Whatever goes wrong with them ends the drawing, never the run."""

    def __init__(self, folder: Path, every: int) -> None:
        try:
            from torch.utils.tensorboard.writer import SummaryWriter
        except ImportError as error:
            raise MissingExtraError(
                f"TensorBoard is missing ({error}): pip install 'cruciform[train]', or --set log.tensorboard=false"
            ) from error
        self._make: Any = lambda step: SummaryWriter(str(folder), purge_step=step)
        self._writer: Any = None
        self._every = every

    def started(self, plan: Plan) -> None:
        """Takes back what was drawn behind the step that the run goes on from."""
        try:
            self._writer = self._make(plan.step + 1)
        except OSError:
            self._writer = _Nothing()

    def stepped(self, record: StepRecord) -> None:
        """Draws the loss, the rate and the gradient."""
        if record.step % self._every == 0:
            self._draw({"loss": record.loss, "rate": record.rate, "gradient": record.norm}, "step", record.step)

    def finished_epoch(self, epoch: int, step: int, figures: dict[str, Any]) -> None:
        """Draws the figures."""
        self._draw({name: value for name, value in figures.items() if isinstance(value, float)}, "epoch", step)

    def ended(self, state: str, step: int, error: BaseException | None) -> None:
        """Closes the files."""
        if self._writer is not None:
            with suppress(OSError):
                self._writer.close()

    def _draw(self, values: dict[str, float], group: str, step: int) -> None:
        try:
            for name, value in values.items():
                self._writer.add_scalar(f"{group}/{name}", value, step)
        except OSError:
            self._writer = _Nothing()


class _Nothing:
    """Stands where a writer was that can't write any more."""

    def add_scalar(self, name: str, value: float, step: int) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""
