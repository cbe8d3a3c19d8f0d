"""The progress of a run: a bar with speed and remaining time on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from cruciform.cli.shared.terminal import console, echo
from cruciform.text.wording import plural
from cruciform.training.run.observer import Observer, Plan, StepRecord

PLAIN_EVERY = 30.0  # seconds between two plain lines


class BarObserver(Observer):
    """Shows a progress bar."""

    def __init__(self) -> None:
        self._console = console(error=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[figures]}"),
            console=self._console,
        )
        self._plan: Plan | None = None
        self._training: TaskID | None = None
        self._evaluating: TaskID | None = None
        self._speed = _Speed()

    def on_start(self, plan: Plan) -> None:
        """Show the bar."""
        self._plan = plan
        self._console.print(_opening(plan))
        self._training = self._bar.add_task("training", total=plan.steps, completed=plan.step, figures="")
        self._bar.start()

    def on_step(self, record: StepRecord) -> None:
        """Update the bar."""
        if self._training is None or self._plan is None:
            return
        epoch = (record.step - 1) // self._plan.steps_per_epoch + 1
        epochs = self._plan.steps // self._plan.steps_per_epoch
        speed = self._speed.after(record.samples)
        figures = f"{speed:,.0f} images/s  loss {record.loss:.3f}"
        self._bar.update(
            self._training, completed=record.step, description=f"epoch {epoch} of {epochs}", figures=figures
        )

    def on_evaluation(self, done: int, of: int) -> None:
        """Show a second bar during an evaluation."""
        if self._evaluating is None:
            self._evaluating = self._bar.add_task("evaluating", total=of, figures="")
        self._bar.update(self._evaluating, completed=done)
        if done == of:
            self._bar.remove_task(self._evaluating)
            self._evaluating = None
            self._speed = _Speed()

    def on_epoch(self, epoch: int, step: int, figures: dict[str, Any]) -> None:
        """Print the metrics."""
        self._bar.console.print(_epoch_line(epoch, figures))

    def on_notice(self, message: str, step: int) -> None:
        """Print the message."""
        self._bar.console.print(message, style="yellow")

    def on_end(self, state: str, step: int, error: BaseException | None) -> None:
        """Remove the bar."""
        self._bar.stop()


class LineObserver(Observer):
    """Prints a line at intervals, for log files.

    Args:
        write: Takes the lines.
        every: Seconds between two lines.
    """

    def __init__(self, write: Callable[[str], None], every: float = PLAIN_EVERY) -> None:
        self._write, self._every = write, every
        self._plan: Plan | None = None
        self._start = self._last = time.monotonic()
        self._first_step = 0
        self._speed = _Speed()

    def on_start(self, plan: Plan) -> None:
        """Write the start."""
        self._plan, self._first_step = plan, plan.step
        self._start = self._last = time.monotonic()
        self._write(_opening(plan))

    def on_step(self, record: StepRecord) -> None:
        """Write the progress, at intervals."""
        speed = self._speed.after(record.samples)
        now = time.monotonic()
        if self._plan is None or now - self._last < self._every:
            return
        self._last = now
        left = (now - self._start) / (record.step - self._first_step) * (self._plan.steps - record.step)
        self._write(
            f"step {record.step:,} of {self._plan.steps:,}, loss {record.loss:.3f}, {speed:,.0f} images/s, "
            f"{left / 60:.1f} minutes left"
        )

    def on_epoch(self, epoch: int, step: int, figures: dict[str, Any]) -> None:
        """Write the metrics."""
        self._write(_epoch_line(epoch, figures))
        self._speed = _Speed()

    def on_notice(self, message: str, step: int) -> None:
        """Write the message."""
        self._write(message)


class _Speed:
    """A running mean of samples per second."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._speed = 0.0

    def after(self, samples: int) -> float:
        now = time.monotonic()
        current = samples / max(1e-9, now - self._last)
        self._last = now
        self._speed = current if not self._speed else 0.95 * self._speed + 0.05 * current
        return self._speed


def make_observer() -> Observer:
    """Return a bar on a terminal, else plain lines; both to standard error."""
    return BarObserver() if sys.stderr.isatty() else LineObserver(lambda line: echo(line, error=True))


def _opening(plan: Plan) -> str:
    epochs = plan.steps // plan.steps_per_epoch
    where = f"resumed from step {plan.step:,}" if plan.step else "from scratch"
    ranks = f", {plan.world} processes" if plan.world > 1 else ""
    return (
        f"{_short(plan.run)}: {plural(epochs, 'epoch')} of {plural(plan.samples, 'sample')}, "
        f"{plural(plan.steps, 'step')}, {where}{ranks}"
    )


def _epoch_line(epoch: int, figures: dict[str, Any]) -> str:
    line = f"epoch {epoch}: training loss {figures['train_loss']:.3f}"
    if "top1" in figures:
        samples = plural(figures["samples"], "sample")
        line += f", {figures['top1']:.2%} top-1 accuracy on {samples} (loss {figures['loss']:.3f})"
    if "top1_flip_tta" in figures:
        line += f", {figures['top1_flip_tta']:.2%} with flip TTA"
    if "auc" in figures:
        line += f", AUC {figures['auc']:.3f}"
    return line


def _short(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
