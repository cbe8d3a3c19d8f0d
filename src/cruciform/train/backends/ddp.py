"""Several processes under torchrun, which starts them again, all together, when one dies.

Called by torchrun, a process joins the others. Called by a person, it calls torchrun on itself, on this machine and its
loopback only.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import FrameType

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from cruciform.errors import CruciformError, RunError
from cruciform.train.backends.backend import BACKENDS, Job, check_end, prepare
from cruciform.train.loop import Interrupted, train
from cruciform.train.runtime import Together, pick_device
from cruciform.train.signals import heard_signals

RESTARTS = 10
CONNECT = 30  # seconds
LAUNCHED = "CRUCIFORM_LAUNCHED"
"""Environment variable: set in processes that were started by the launcher below, which speaks for them."""

TIMEOUT = "CRUCIFORM_TIMEOUT"
"""Environment variable: seconds after which a process that does not answer is given up, and all start again."""


@BACKENDS.register("ddp")
def run_together(job: Job) -> bool:
    """Joins the others where torchrun has started this process, else calls torchrun."""
    if "RANK" in os.environ:
        return _join(job)
    _launch(job)
    return True


def _join(job: Job) -> bool:
    device = pick_device(job.device)
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    _connect("nccl" if device.type == "cuda" else "gloo")
    launched = LAUNCHED in os.environ
    try:
        runtime = Together(device)
        observers = [job.observe()] if runtime.leads else []
        train(job.recipe, job.run, runtime, resume=job.resume, observers=observers)
        return runtime.leads and not launched
    except Interrupted as stop:
        if not launched:
            raise
        sys.exit(128 + stop.signal)  # and not a word: the launcher tells how to go on
    except CruciformError:
        # torchrun would start a run again that can only fail again. The log says why; the launcher reads it there.
        if not launched:
            raise
        return False
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


def _launch(job: Job) -> None:
    # What fails in every process would be started again ten times before anybody is told.
    if pick_device(job.device).type == "cuda" and job.workers > (gpus := torch.cuda.device_count()):
        raise RunError(
            f"--workers {job.workers}: each process takes a GPU, and this machine has {gpus}; give --workers {gpus}, "
            "or --device cpu"
        )
    prepare(job)
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"),
        *("--nproc-per-node", str(job.workers), "--max-restarts", str(RESTARTS)),
        *("-m", "cruciform", "train", str(job.run.directory), "--resume", "--backend", "ddp", "--device", job.device),
    ]
    threads = max(1, (os.cpu_count() or 1) // job.workers)
    environment = {"OMP_NUM_THREADS": str(threads), "GLOO_SOCKET_IFNAME": "lo", **os.environ, LAUNCHED: "1"}
    # The command is ours, and the directory's name goes to no shell.
    with subprocess.Popen(command, env=environment) as agent, _passing_on_signals(agent) as received:  # noqa: S603
        code = _end_of(agent)
    status = job.run.status()
    if received and status["state"] == "interrupted":  # else they could not save, or were not given the time
        raise Interrupted(received[0], status["step"])
    if code and not received:
        raise RunError(f"torchrun gave up after {RESTARTS} new starts, with code {code}; its messages are above")
    check_end(job.run)


def _end_of(agent: "subprocess.Popen[bytes]") -> int:
    """Waits for a process, and hears signals meanwhile; returns its code.

    The system may give a signal to any thread, and Python acts on it when the main thread goes on, which one that waits
    without an end does not: the signal would be heard when all is over.
    """
    while True:
        with suppress(subprocess.TimeoutExpired):
            return agent.wait(timeout=1)


@contextmanager
def _passing_on_signals(agent: "subprocess.Popen[bytes]") -> Iterator[list[int]]:
    received: list[int] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        received.append(number)
        agent.send_signal(signal.SIGTERM)  # torchrun passes it to the ranks, which save and end

    before = {number: signal.signal(number, pass_on) for number in heard_signals()}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
