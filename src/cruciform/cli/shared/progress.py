"""Show progress of long work on the terminal, and exit cleanly when it is interrupted."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from cruciform.cli.shared.terminal import console, echo


@contextmanager
def measuring(limit: float | None = None) -> Iterator[Callable[[str], None]]:
    """Show that something is being measured; yield a function that takes what is measured now.

    Args:
        limit: Seconds that the search may take; None: no limit.
    """
    from cruciform.cli.shared.heartbeat import heartbeat, watched

    of = "" if limit is None else f" (limit {limit:g} s)"
    if not watched():
        with heartbeat(of) as say:
            yield lambda what: say(f"measuring {what}")
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, transient=True, console=console(error=True)) as bar:
        task = bar.add_task(f"measuring{of}")
        yield lambda what: bar.update(task, description=f"measuring {what}{of}")


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar; yield a function that takes (done, total)."""
    from cruciform.cli.shared.heartbeat import heartbeat, watched

    if not watched():
        with heartbeat() as say:
            yield lambda done, of: say(f"{what}, {done:,} of {of:,}")
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, transient=True, console=console(error=True)) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)


@contextmanager
def interruptible(advice: str) -> Iterator[None]:
    """Exit with the signal's code after a run in the block has saved its state; print how to resume it."""
    from cruciform.training.engine.loop import Interrupted

    try:
        yield
    except Interrupted as stop:
        echo(f"{stop}. {advice}", error=True)
        raise typer.Exit(128 + stop.signal) from stop
