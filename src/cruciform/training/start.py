"""Start a run on a backend."""

from cruciform.training.backends.backend import BACKENDS, Job


def start(job: Job) -> bool:
    """Run a job to its end; return whether this process leads, and reports the result."""
    return BACKENDS.get(job.processes.backend)(job)
