"""A backend: how the processes of a run come to be. What they do then is the same everywhere."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from cruciform import errors
from cruciform.errors import RunError
from cruciform.registry import Registry
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.run.journal import read_journal
from cruciform.training.run.observer import Observer
from cruciform.training.run.run import Run
from cruciform.training.runtime.runtime import SingleProcess
from cruciform.training.setup.recipe_data import open_datasets


@dataclass(frozen=True)
class Job:
    """What is to be run, and where.

    Attributes:
        recipe: What to compute.
        run: Where its state is kept.
        resume: Whether to go on where it has been started before.
        workers: How many processes.
        least: With how few of them it may go on while machines are missing; left out: with all or none. Only on Ray.
        device: What they compute on.
        observe: Makes the observer that shows people what happens; called where people look.
    """

    recipe: Recipe
    run: Run
    resume: bool = False
    workers: int = 1
    least: int | None = None
    device: str = "auto"
    observe: Callable[[], Observer] = Observer

    def __post_init__(self) -> None:
        if self.least is not None and self.least > self.workers:
            raise RunError(f"{self.least} workers at the least are more than the {self.workers} in all: --workers")


BACKENDS: Registry[Callable[[Job], bool]] = Registry("backend")
"""Backends by name. Each runs a job to its end, and says whether this process is the one to speak of it then."""


def prepare(job: Job) -> None:
    """Makes the run's directory, before any process is started that could only say one by one what is wrong."""
    with job.run.locked():  # nobody else may be writing; the processes take the lock then
        job.run.prepare(job.recipe, resume=job.resume)
    open_datasets(job.recipe.data, SingleProcess(torch.device("cpu")))


def check_end(run: Run) -> None:
    """Raises, in the process that started the others, the error that the log says they ended with."""
    last = (read_journal(run.log) or [{}])[-1]
    if last.get("state") != "done":
        kind = getattr(errors, str(last.get("error")), None)
        if not isinstance(kind, type) or not issubclass(kind, errors.CruciformError):  # a log is only text
            kind = RunError
        raise kind(str(last.get("reason") or "the processes of the run ended without a word in its log"))
