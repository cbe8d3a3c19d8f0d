"""A worker process under torchrun: connects to the others, and trains with them.

The launcher in ``ddp`` starts ``python -m cruciform.training.backends.ddp_worker RUN DEVICE``. It prints nothing: the
launcher follows the log of the run.
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
from cruciform.training.runtime.processes import Processes
from cruciform.training.runtime.runtime import Distributed, pick_device

CONNECT = 30  # seconds
TIMEOUT = "CRUCIFORM_TIMEOUT"
"""Environment variable: seconds without an answer after which a process counts as dead, and all are restarted."""


def join(job: Job) -> bool:
    """Train together with the others; return whether this process leads."""
    device = pick_device(job.device)
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    _connect("nccl" if device.type == "cuda" else "gloo")
    try:
        runtime = Distributed(device)
        observers = [job.observer] if runtime.leads else []
        train(job.recipe, job.run, runtime, resume=job.resume, observers=observers)
        return runtime.leads
    finally:
        dist.destroy_process_group()


def _connect(backend: str) -> None:
    """Connect to the others, within a short timeout."""
    seconds = float(os.environ.get(TIMEOUT, "600"))
    soon = timedelta(seconds=min(CONNECT, seconds))
    store, rank, world = next(rendezvous("env://", timeout=soon))
    # torchrun keeps one store for all attempts. Without a prefix for each, restarted processes would find the addresses
    # of dead ones in it, and wait for them until the timeout.
    own = PrefixStore(f"attempt-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    dist.init_process_group(backend, store=own, rank=rank, world_size=world, timeout=soon)
    # There is no public way to set different timeouts for connecting and for training.
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=seconds))


def main(arguments: Sequence[str]) -> None:
    """Join a run that the launcher has prepared."""
    directory, device = arguments
    run = Run(Path(directory))
    try:
        join(Job(run.recipe(), run, resume=True, processes=Processes(backend="ddp", device=device)))
    except Interrupted as stop:
        sys.exit(128 + stop.signal)
    except CruciformError:
        pass  # torchrun would restart a run that can only fail again; the launcher reads the error in the log


if __name__ == "__main__":
    main(sys.argv[1:])
