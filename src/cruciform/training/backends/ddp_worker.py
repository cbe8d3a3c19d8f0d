"""One of several processes under torchrun: finds the others, and trains with them.

``python -m cruciform.training.backends.ddp_worker RUN DEVICE`` is what the launcher in ``ddp`` starts; it says nothing,
for the launcher reads in the run's log what happens, and why it ended.
"""

import os
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from cruciform.errors import CruciformError
from cruciform.training.backends.backend import Job
from cruciform.training.engine.loop import Interrupted, train
from cruciform.training.run.run import Run
from cruciform.training.runtime.runtime import Distributed, pick_device

CONNECT = 30  # seconds
TIMEOUT = "CRUCIFORM_TIMEOUT"
"""Environment variable: seconds after which a process that does not answer is given up, and all start again."""


def join(job: Job) -> bool:
    """Trains together with the others; returns whether this process is the one to speak of it then."""
    device = pick_device(job.device)
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    _connect("nccl" if device.type == "cuda" else "gloo")
    try:
        runtime = Distributed(device)
        observers = [job.observe()] if runtime.leads else []
        train(job.recipe, job.run, runtime, resume=job.resume, observers=observers)
        return runtime.leads
    finally:
        dist.destroy_process_group()


def _connect(backend: str) -> None:
    """Finds the others, soon or not at all."""
    seconds = float(os.environ.get(TIMEOUT, "600"))
    soon = timedelta(seconds=min(CONNECT, seconds))
    store, rank, world = next(rendezvous("env://", timeout=soon))
    # torchrun keeps one store for all attempts. Without a prefix for each, those who start again after a kill find the
    # addresses of the dead in it, and call them until the time is over.
    own = PrefixStore(f"attempt-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    dist.init_process_group(backend, store=own, rank=rank, world_size=world, timeout=soon)
    # There is no public way to give finding each other and working together different times.
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=seconds))


def main(arguments: Sequence[str]) -> None:
    """Takes part in a run that the launcher has prepared."""
    directory, device = arguments
    run = Run(Path(directory))
    try:
        join(Job(run.recipe(), run, resume=True, device=device))
    except Interrupted as stop:
        sys.exit(128 + stop.signal)
    except CruciformError:
        pass  # torchrun would start a run again that can only fail again; the launcher reads why in the log


if __name__ == "__main__":
    main(sys.argv[1:])
