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
from types import FrameType

import torch

from cruciform.errors import RunError
from cruciform.training.backends.backend import BACKENDS, Job, check_end, prepare
from cruciform.training.backends.ddp_worker import join
from cruciform.training.engine.loop import Interrupted
from cruciform.training.run.follow import following
from cruciform.training.runtime.runtime import pick_device
from cruciform.training.runtime.signals import heard_signals

RESTARTS = 10


@BACKENDS.register("ddp")
def run_distributed(job: Job) -> bool:
    """Joins the others where torchrun has started this process, else calls torchrun."""
    if "RANK" in os.environ:
        return join(job)
    _launch(job)
    return True


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
        *("-m", "cruciform.training.backends.ddp_worker", str(job.run.directory), job.device),
    ]
    threads = max(1, (os.cpu_count() or 1) // job.workers)
    environment = {"OMP_NUM_THREADS": str(threads), "GLOO_SOCKET_IFNAME": "lo", **os.environ}
    # The command is ours, and the directory's name goes to no shell.
    with (
        following(job.run, job.observe()),
        subprocess.Popen(command, env=environment) as agent,  # noqa: S603
        _passing_on_signals(agent) as received,
    ):
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
