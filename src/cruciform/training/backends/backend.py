"""Backends: how the processes of a run are started."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from cruciform import errors
from cruciform.errors import RunError
from cruciform.registry import Registry
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.run.journal import read_journal
from cruciform.training.run.observer import Observer
from cruciform.training.run.run import Run
from cruciform.training.runtime.processes import Processes
from cruciform.training.runtime.runtime import SingleProcess
from cruciform.training.setup.recipe_data import open_datasets

ONE_PROCESS = Processes()


@dataclass(frozen=True)
class Job:
    """A run, and the processes to start for it.

    Attributes:
        recipe: What to compute.
        run: Where its state is stored.
        resume: Whether to resume, where it has been started before.
        processes: The processes.
        observer: Is called in the process that starts the others.
    """

    recipe: Recipe
    run: Run
    resume: bool = False
    processes: Processes = ONE_PROCESS
    observer: Observer = field(default_factory=Observer)

    @property
    def workers(self) -> int:
        """Number of processes."""
        return self.processes.workers

    @property
    def device(self) -> str:
        """The device of each process."""
        return self.processes.device


BACKENDS: Registry[Callable[[Job], bool]] = Registry(
    "backend", package="cruciform.training.backends", group="cruciform.backends"
)
"""Backends by name. Each runs a job to its end and returns whether this process leads, and reports the result."""


def prepare(job: Job) -> None:
    """Create the directory of the run and open its data, so that errors are raised once, before processes start."""
    with job.run.locked():  # no other process may be writing; the workers take the lock then
        job.run.prepare(job.recipe, resume=job.resume)
    open_datasets(job.recipe.data, SingleProcess(torch.device("cpu")))


def check_end(run: Run) -> None:
    """Raise, in the process that started the others, the error that the log ends with."""
    last = (read_journal(run.log) or [{}])[-1]
    if last.get("state") != "done":
        kind = getattr(errors, str(last.get("error")), None)
        if not isinstance(kind, type) or not issubclass(kind, errors.CruciformError):  # the log is untrusted text
            kind = RunError
        raise kind(str(last.get("reason") or "the processes of the run ended without a log entry"))
