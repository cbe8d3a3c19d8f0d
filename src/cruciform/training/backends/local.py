"""The backend ``local``: this process."""

from cruciform.errors import RunError
from cruciform.training.backends.backend import BACKENDS, Job
from cruciform.training.engine.loop import train
from cruciform.training.runtime.runtime import SingleProcess, pick_device


@BACKENDS.register("local")
def run_locally(job: Job) -> bool:
    """Train in this process."""
    if job.workers != 1:
        raise RunError(f"the backend local has one process, not {job.workers}; use the backend ddp or ray")
    train(job.recipe, job.run, SingleProcess(pick_device(job.device)), resume=job.resume, observers=[job.observer])
    return True
