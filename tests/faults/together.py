"""Faults among several processes: one dies, hangs, lags behind, is cut off; their number changes.

The ranks are forked, and joined by the same code that torchrun's processes run. What torchrun does here is its part in
a few lines: when one rank ends badly, all are ended, and all start again.
"""

import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from fault import Trial, Violation, fault
from work import BATCH, PER_EPOCH, SAMPLES, STEPS, check_clean, last_line, spawn, weights

from cruciform.training.backends.backend import Job
from cruciform.training.backends.ddp import run_distributed
from cruciform.training.engine.learner import Learner
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.run.journal import read_journal
from cruciform.training.run.run import Run
from cruciform.training.runtime.processes import Processes
from cruciform.training.tables.table import read_table

RESTARTS = 12
EPOCHS = 3
Arm = Callable[[int], None]


def recipe(shared: Path) -> Recipe:
    table = {"model": {"name": "cifar_fast", "options": {"widths": [4, 4, 4]}}, "epochs": EPOCHS, "batch_size": BATCH,
             "data": {"kind": "cifar10", "path": str(shared / "data"), "threads": 1},
             "train_transforms": [{"kind": "hflip"}], "optimizer": {"kind": "sgd", "lr": 0.01},
             "checkpoint": {"steps": 2, "keep": 2}, "evaluation": {"batch_size": 50},
             "log": {"tensorboard": False, "steps": 1, "samples": True}}  # fmt: skip
    return read_table(Recipe, table, "the test's recipe")


def free_port() -> int:
    with socket.socket() as end:
        end.bind(("127.0.0.1", 0))
        return int(end.getsockname()[1])


def start(run: Run, shared: Path, world: int, *, arm: Arm = lambda rank: None, timeout: float = 20,
          doors: dict[int, int] | None = None) -> list[int]:  # fmt: skip
    """Starts all ranks; ``doors`` names other ports for some of them to find the first one by."""
    port = (doors or {}).get(0) or free_port()

    def rank_of(rank: int) -> Callable[[], None]:
        def work() -> None:
            torch.set_num_threads(1)
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1",
                              MASTER_PORT=str((doors or {}).get(rank, port)),
                              CRUCIFORM_TIMEOUT=str(timeout))  # fmt: skip
            arm(rank)
            run_distributed(Job(recipe(shared), run, resume=True, processes=Processes("ddp", world, "cpu")))

        return work

    return [spawn(rank_of(rank), run.directory.parent / "stderr") for rank in range(world)]


def watch(run: Run, shared: Path, world: int, first: list[int], seconds: float = 110) -> int:
    """Does what torchrun does: waits, ends all when one has ended badly, starts again. Returns how often."""
    until = time.monotonic() + seconds
    ranks = first
    for starts in range(1, RESTARTS + 1):
        left = set(ranks)
        bad = False
        while left and not bad and time.monotonic() < until:
            for rank in list(left):
                done, status = os.waitpid(rank, os.WNOHANG)
                if done:
                    left.discard(rank)
                    bad = bad or status != 0
            time.sleep(0.01)
        for rank in left:
            os.kill(rank, signal.SIGKILL)
            os.waitpid(rank, 0)
        if not bad and not left:
            return starts
        if time.monotonic() >= until:
            raise Violation("I4", f"not done after {seconds:.0f} s and {starts} starts")
        ranks = start(run, shared, world)
    raise Violation("I4", f"not done after {RESTARTS} starts")


def reach(run: Run, step: int, ranks: list[int]) -> None:
    """Waits until a run has taken so many steps."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if any(line.get("step", 0) >= step and line["event"] == "step" for line in read_journal(run.log)):
            return
        time.sleep(0.005)
    for rank in ranks:
        os.kill(rank, signal.SIGKILL)
    raise Violation("I4", f"step {step} was not reached")


def check(run: Run, shared: Path, world: int = 2, *, exact: bool = True) -> None:
    """Holds a run of several processes against the invariants."""
    check_clean(run)
    last = last_line(run)
    if last.get("state") != "done" or last.get("step") != STEPS:
        raise Violation("I5", f"the log ends with {last}")
    if list(run.directory.rglob(".part-*")):
        raise Violation("I4", "something is left behind")
    if exact and weights(run) != undisturbed(shared, world):
        raise Violation("I2", "the weights differ from those of an undisturbed run of as many processes")
    seen: dict[tuple[int, int], list[int]] = {}
    order: dict[int, int] = {}
    files = sorted((run.directory / "samples").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    for place, file in enumerate(files):
        for line in read_journal(file):
            seen[line["step"], line["rank"]] = line["numbers"]
            if line["rank"] == 0:
                order[line["step"]] = place
    if exact:
        for epoch in range(EPOCHS):
            steps = range(epoch * PER_EPOCH + 1, (epoch + 1) * PER_EPOCH + 1)
            found = Counter(n for step in steps for rank in range(world) for n in seen.get((step, rank), ()))
            if found != Counter(range(SAMPLES)):
                raise Violation("I3", f"epoch {epoch} has not seen every sample once")


def undisturbed(shared: Path, world: int) -> str:
    """Returns the weights of an undisturbed run, which is made when first asked for."""
    path = shared / f"weights-{world}"
    if not path.exists():
        run = Run(shared / f"together-{world}" / f"{os.getpid()}" / "run")
        run.directory.parent.mkdir(parents=True)
        watch(run, shared, world, start(run, shared, world))
        part = path.with_suffix(f".{os.getpid()}")
        part.write_text(weights(run))
        part.replace(path)
    return path.read_text()


@fault("F9 a rank dies", 32)
def rank_dies(trial: Trial) -> int:
    run = Run(trial.folder / "run")
    ranks = start(run, trial.shared, 2)
    reach(run, trial.random.randrange(1, STEPS - 2), ranks)
    os.kill(ranks[trial.number % 2], signal.SIGKILL)
    starts = watch(run, trial.shared, 2, ranks)
    check(run, trial.shared)
    return int(starts > 1)


@fault("F10 a rank hangs", 8)
def rank_hangs(trial: Trial) -> int:
    run = Run(trial.folder / "run")
    at = trial.random.randrange(1, STEPS - 1)

    def stop(rank: int) -> None:
        """The rank stops itself at a step: stopped from outside, it might have done all of its work by then."""
        if rank != trial.number % 2:
            return
        taken = Learner.step

        def stopping(self: Learner, batch: Any, number: int, *more: Any, **options: Any) -> Any:
            if number == at:
                os.kill(os.getpid(), signal.SIGSTOP)
            return taken(self, batch, number, *more, **options)

        Learner.step = stopping  # type: ignore[method-assign]

    starts = watch(run, trial.shared, 2, start(run, trial.shared, 2, arm=stop, timeout=3))
    check(run, trial.shared)
    return int(starts > 1)


@fault("F11 a rank lags behind", 8)
def rank_lags(trial: Trial) -> int:
    run = Run(trial.folder / "run")

    def lag(rank: int) -> None:
        if rank != trial.number % 2:
            return
        taken = Learner.step

        def slowly(*given: Any, **options: Any) -> Any:
            time.sleep(0.05)
            return taken(*given, **options)

        Learner.step = slowly  # type: ignore[method-assign]

    if watch(run, trial.shared, 2, start(run, trial.shared, 2, arm=lag)) != 1:
        raise Violation("I4", "a rank that lags behind was given up")
    check(run, trial.shared)
    return 1


WAYS = ("drop", "reset", "trickle", "delay")


class Proxy:
    """A link on the loopback that misbehaves: after so many bytes it swallows, resets, trickles or delays."""

    def __init__(self, port: int, target: int, way: str, after: int) -> None:
        self._target, self._way, self._after = target, way, after
        self._listener = socket.create_server(("127.0.0.1", port))
        self.struck = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            try:
                far = socket.create_connection(("127.0.0.1", self._target), timeout=5)
            except OSError:
                near.close()
                continue
            for source, drain in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, drain), daemon=True).start()

    def _pump(self, source: socket.socket, drain: socket.socket) -> None:
        passed = 0
        try:
            while data := source.recv(4096):
                passed += len(data)
                if passed > self._after:
                    self.struck = True
                    if self._way == "drop":
                        continue
                    if self._way == "reset":
                        break
                    time.sleep(0.5 if self._way == "delay" else 0.05 * len(data))
                drain.sendall(data)
        except OSError:
            pass
        for end in (source, drain):
            end.close()


@fault("F12 a link that is cut, reset or slow", 16)
def partition(trial: Trial) -> int:
    """The second rank finds the first through a link that misbehaves; new starts find a good one."""
    run = Run(trial.folder / "run")
    port = free_port()
    # Ranks are forked before this process has a thread; the link is there when they look for it, soon after.
    listener = free_port()
    ranks = start(run, trial.shared, 2, timeout=5, doors={0: port, 1: listener})
    proxy = Proxy(listener, port, WAYS[trial.number % 4], after=trial.random.choice((0, 40, 200)))
    starts = watch(run, trial.shared, 2, ranks)
    check(run, trial.shared)
    if not proxy.struck and starts == 1:
        return 0
    return 1


HISTORIES = ((2, 1, 2), (1, 2, 1))


@fault("F16 the number of ranks changes", 16)
def elastic(trial: Trial) -> int:
    """Ends and goes on with another number of processes: every sample still once an epoch."""
    run = Run(trial.folder / "run")
    history = HISTORIES[trial.number % 2]
    reached = 0
    for place, world in enumerate(history):
        ranks = start(run, trial.shared, world)
        if place == len(history) - 1:
            watch(run, trial.shared, world, ranks)
            break
        reached = min(STEPS - 2, reached + trial.random.randrange(2, 5))
        reach(run, reached, ranks)
        for rank in ranks:
            os.kill(rank, signal.SIGTERM)
        codes = [os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1]) for rank in ranks]
        if set(codes) - {143, 0}:
            raise Violation("I5", f"asked to end, the ranks ended with {codes}")
        reached = max(line.get("step", 0) for line in read_journal(run.log))
    check(run, trial.shared, exact=False)
    worlds = [line["world"] for line in read_journal(run.log) if line["event"] == "start"]
    if worlds != list(history[: len(worlds)]):
        raise Violation("I5", f"the log says {worlds}")
    _check_shares(run)
    return len(history) - 1


def _check_shares(run: Run) -> None:
    """Each step was taken by one number of ranks in the end, whose shares make up its batch."""
    shares: dict[int, dict[str, list[int]]] = {}
    for file in (run.directory / "samples").iterdir():
        for line in read_journal(file):
            shares.setdefault(line["step"], {})[f"{file.name}"] = line["numbers"]
    for epoch in range(EPOCHS):
        steps = range(epoch * PER_EPOCH + 1, (epoch + 1) * PER_EPOCH + 1)
        found = Counter(n for step in steps for n in set().union(*map(set, shares.get(step, {}).values())))
        if found != Counter(range(SAMPLES)):
            raise Violation("I3", f"epoch {epoch} has not seen every sample once")
