"""Starts a run on a backend. A new backend is imported here, which registers it."""

from cruciform.train.backends import ddp, local, ray  # noqa: F401
from cruciform.train.backends.backend import BACKENDS, Job


def start(job: Job, backend: str = "local") -> bool:
    """Runs a job to its end; returns whether this process is the one to speak of it then."""
    return BACKENDS.get(backend)(job)
