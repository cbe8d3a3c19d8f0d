"""The runs that faults strike: a tiny network on a tiny data set, in children of a process that has no threads."""

import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from fault import Violation
from kill_driver import BASE, SAMPLES, network, write_data

from cruciform.errors import CheckpointError, CruciformError
from cruciform.files import DISK_FULL
from cruciform.training.engine.loop import Interrupted, train
from cruciform.training.recipe.python_objects import PythonObjects
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.run.journal import read_journal
from cruciform.training.run.run import Run
from cruciform.training.runtime.runtime import SingleProcess
from cruciform.training.tables.table import read_table

BATCH, EPOCHS = 20, 3
PER_EPOCH = -(-SAMPLES // BATCH)
STEPS = EPOCHS * PER_EPOCH
DEADLINE = 40.0  # seconds that a start may take; it takes one
NOISY = ("subprocess.Popen", "os.system", "os.posix_spawn", "os.exec")


def recipe(shared: Path, **changes: Any) -> Recipe:
    """Returns the recipe of all runs, with batch norm, dropout, mixup and an average of the weights."""
    data = {"kind": "cifar10", "path": str((shared / "data").absolute()), "threads": 1, **changes.pop("data", {})}
    table = {**BASE, "data": data, "epochs": EPOCHS, "batch_size": BATCH, "checkpoint": {"steps": 2, "keep": 2},
             "optimizer": {"kind": "sgd", "lr": 0.01, "weight_decay": 0.01},
             "log": {"tensorboard": False, "steps": 1, "samples": True}, **changes}  # fmt: skip
    return read_table(Recipe, table, "the test's recipe")


def prepare(shared: Path) -> None:
    """Writes the data, and what an undisturbed run comes to."""
    write_data(shared / "data")
    run = Run(shared / "whole")
    if code := wait(launch(recipe(shared), run)):
        raise SystemExit(f"the undisturbed run failed with {code}")
    (shared / "weights").write_text(weights(run))


def launch(made: Recipe, run: Run, arm: Callable[[], None] = lambda: None, model: Callable[[], Any] = network) -> int:
    """Trains in a child, which is armed before, and returns its number."""

    def work() -> None:
        torch.set_num_threads(1)
        arm()
        train(made, run, SingleProcess(torch.device("cpu")), resume=True, inputs=PythonObjects(model=model()))

    return spawn(work, run.directory.parent / "stderr")


def spawn(work: Callable[[], object], errors: Path) -> int:
    """Does something in a child, whose exit code is what the command line's would be."""
    child = os.fork()
    if child:
        return child
    code = 130  # of a second interrupt, which may come while the first one is seen to
    try:
        os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
        sys.addaudithook(_listen)
        code = _code_of(work)
    finally:
        os._exit(code)


def _code_of(work: Callable[[], object]) -> int:
    """Does something, and returns the exit code that the command line would have for it."""
    try:
        work()
    except Interrupted as stop:
        return 128 + stop.signal
    except KeyboardInterrupt:
        return 130
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
        if isinstance(error, CruciformError):
            return error.exit_code
        return CheckpointError.exit_code if isinstance(error, OSError) and error.errno in DISK_FULL else 1
    return 0


def _listen(event: str, args: tuple[Any, ...]) -> None:
    """Ends a process that is not quiet, with a code that nothing else has."""
    loud = event in NOISY
    if event in ("socket.connect", "socket.bind") and isinstance(args[1], tuple):
        loud = str(args[1][0]) not in ("127.0.0.1", "::1", "localhost", "", "0.0.0.0", "::")  # noqa: S104
    if loud:
        os._exit(99)


def wait(child: int, seconds: float = DEADLINE) -> int:
    """Waits for a child; returns its exit code, below 0 where a signal ended it."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            if code == 99:
                raise Violation("I8", "a socket beyond the loopback was opened, or a program started")
            return code
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise Violation("I4", f"it neither ended nor failed in {seconds:.0f} s")


def weights(run: Run) -> str:
    """Returns the checksum of the newest weights."""
    checkpoint, _ = run.checkpoints().load_newest()
    if checkpoint is None:
        raise Violation("I1", "no whole checkpoint is left")
    digest = hashlib.sha256()
    for name in sorted(checkpoint.tensors):
        digest.update(name.encode() + checkpoint.tensors[name].numpy().tobytes())
    return digest.hexdigest()


def finish(made: Recipe, run: Run, shared: Path, *, exact: bool = True) -> None:
    """Goes on with a run to its end, undisturbed, and holds it against all invariants."""
    code = wait(launch(made, run))
    if code:
        last = (run.directory.parent / "stderr").read_text().splitlines()[-1:]
        raise Violation("I4", f"it could not be gone on with: code {code}, {last}")
    check(run, shared, exact=exact)


def check(run: Run, shared: Path, *, exact: bool = True) -> None:
    """Holds a run that has ended well against all invariants."""
    if exact and weights(run) != (shared / "weights").read_text():
        raise Violation("I2", "the weights differ")
    check_clean(run)
    left = [path.name for path in run.directory.rglob(".part-*")]
    if left:
        raise Violation("I4", f"left behind: {left}")
    if run.is_locked():
        raise Violation("I6", "the lock is still held")
    status = run.status()
    if status["state"] != "done" or status["step"] != STEPS:
        raise Violation("I5", f"the log says {status['state']} at step {status['step']}")
    check_samples(run, range(SAMPLES))


def check_clean(run: Run) -> None:
    """No checkpoint that can be read holds a number that is none."""
    from cruciform.training.run.checkpoint import load

    for path in (run.directory / "checkpoints").glob("step-*"):
        with suppress(CheckpointError):
            for name, tensor in load(path).tensors.items():
                if not torch.isfinite(tensor).all():
                    raise Violation("I7", f"{name} in {path.name}")


def check_samples(run: Run, samples: Any) -> None:
    """Every epoch has seen every sample once; steps that were taken twice saw the same ones."""
    seen: dict[int, list[int]] = {}
    for file in (run.directory / "samples").iterdir():
        for line in read_journal(file):
            if seen.setdefault(line["step"], line["numbers"]) != line["numbers"]:
                raise Violation("I3", f"step {line['step']} was taken twice, with other samples")
    for epoch in range(EPOCHS):
        steps = range(epoch * PER_EPOCH + 1, (epoch + 1) * PER_EPOCH + 1)
        if sorted(number for step in steps for number in seen.get(step, ())) != sorted(samples):
            raise Violation("I3", f"epoch {epoch} has not seen every sample once")


def last_line(run: Run) -> dict[str, Any]:
    """Returns the last line of the log."""
    lines = read_journal(run.log)
    return lines[-1] if lines else {}


def reason(run: Run, error: str) -> None:
    """The log must say that the run failed, and of what."""
    last = last_line(run)
    if last.get("event") != "end" or last.get("state") != "failed" or last.get("error") != error:
        raise Violation("I5", f"the log ends with {json.dumps(last)[:200]}, not with {error}")
