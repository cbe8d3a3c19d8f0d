"""The backend ``ddp``: several processes under torchrun, which restarts all of them when one dies.

In a process that torchrun started, it joins the others. Otherwise it starts torchrun, on this machine and its loopback
interface only.
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
    """Join the others where torchrun started this process, else start torchrun."""
    if "RANK" in os.environ:
        return join(job)
    _launch(job)
    return True


def _launch(job: Job) -> None:
    # What fails in every process would be restarted ten times before it is reported.
    if pick_device(job.device).type == "cuda" and job.workers > (gpus := torch.cuda.device_count()):
        raise RunError(
            f"workers={job.workers} is more than the {gpus} GPUs of this machine, and each process needs one; use "
            f"workers={gpus}, or the device cpu"
        )
    prepare(job)
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"),
        *("--nproc-per-node", str(job.workers), "--max-restarts", str(RESTARTS)),
        *("-m", "cruciform.training.backends.ddp_worker", str(job.run.directory), job.device),
    ]
    threads = max(1, (os.cpu_count() or 1) // job.workers)
    environment = {"OMP_NUM_THREADS": str(threads), "GLOO_SOCKET_IFNAME": "lo", **os.environ}
    # The command is fixed, and the name of the directory is not passed to a shell.
    with (
        following(job.run, job.observer),
        subprocess.Popen(command, env=environment) as agent,  # noqa: S603
        _forwarding_signals(agent) as received,
    ):
        code = _end_of(agent)
    status = job.run.status()
    if received and status["state"] == "interrupted":  # else they could not save in time
        raise Interrupted(received[0], status["step"])
    if code and not received:
        raise RunError(f"torchrun failed with code {code} after {RESTARTS} restarts; see its messages above")
    check_end(job.run)


def _end_of(agent: "subprocess.Popen[bytes]") -> int:
    """Wait for a process and handle signals meanwhile; return its exit code.

    The system may deliver a signal to any thread, and Python handles it when the main thread runs next: a wait without
    a timeout would delay it until the process ends.
    """
    while True:
        with suppress(subprocess.TimeoutExpired):
            return agent.wait(timeout=1)


@contextmanager
def _forwarding_signals(agent: "subprocess.Popen[bytes]") -> Iterator[list[int]]:
    received: list[int] = []

    def forward(number: int, frame: FrameType | None) -> None:
        received.append(number)
        agent.send_signal(signal.SIGTERM)  # torchrun forwards it to the ranks, which save and end

    before = {number: signal.signal(number, forward) for number in heard_signals()}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
