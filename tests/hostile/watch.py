"""Runs trials in children that are watched: what crashes, hangs, eats memory or runs code is caught and named.

Children are forked from a process that has imported everything and never used torch's threads. Each does some hundred
trials. Its parent sees in shared memory which one it is at, ends it when that takes too long, and goes on behind it.
"""

import json
import mmap
import os
import resource
import select
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from kind import Kind, Silent, Trial
from trials import Failure, chance

from cruciform.errors import CruciformError
from cruciform.measure.record import peak_memory

SUITE = "hostile"
BATCH = 400
SLOW = 1.0  # seconds of a processor that a trial may take; the clock on the wall knows other processes, too
STUCK = 30.0  # seconds on the wall after which its process is ended: a busy machine has taken 10 for an honest one
MOST_MEMORY = 2**30  # resident, the whole process
ADDRESSES = 3 * 2**30  # that a child may map beyond what its parent has: a guard for the machine

STATE = struct.Struct("qdqq")  # what a child shares: which trial, since when, how many were taken, how many refused

RUNS_CODE = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "subprocess.Popen", "os.fork", "pty.spawn",
             "pickle.find_class", "socket.connect", "socket.bind", "socket.sendto", "shutil.rmtree")  # fmt: skip
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Audit:
    """Hears of all that the interpreter is asked to do, and keeps what no input may bring about."""

    def __init__(self, allowed: Path) -> None:
        self.on = False
        self.heard: list[str] = []
        self._allowed = str(allowed)
        sys.addaudithook(self._hear)

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event in RUNS_CODE and not (event == "shutil.rmtree" and str(args[0]).startswith(self._allowed)):
            self.heard.append(f"{event} {args!r:.100}")
        elif event == "open" and isinstance(args[0], str | bytes) and args[2] & WRITING:
            path = os.fsdecode(args[0])
            if not path.startswith((self._allowed, "/dev/null", "/proc/")):
                self.heard.append(f"opened {path} for writing")


def run_trials(
    kind: Kind, seed: int, numbers: Sequence[int], folder: Path, *, repeat: bool = True
) -> tuple[Counter[str], list[Failure]]:
    """Does the trials of a kind.

    Returns:
        How many were taken and how many refused; and the failures.
    """
    if kind.library:
        with suppress(ImportError, RuntimeError):
            import_module(kind.library)
    seeds = folder / "seeds" / kind.name
    seeds.mkdir(parents=True, exist_ok=True)
    _in_child(lambda: kind.prepare(seeds))
    counts: Counter[str] = Counter()
    failures: list[Failure] = []
    left = list(numbers)
    while left:
        batch = left[:BATCH]
        done = _watch(kind, seed, batch, folder, counts, failures)
        left = left[done:]
    return counts, failures


def _in_child(work: Callable[[], None]) -> None:
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        raise SystemExit("the seeds could not be made; see above")


def _watch(
    kind: Kind, seed: int, batch: Sequence[int], folder: Path, counts: Counter[str], failures: list[Failure]
) -> int:
    """Watches one child; returns how many trials are settled."""
    shared = mmap.mmap(-1, STATE.size)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _work(kind, seed, batch, folder, shared, writer)
    os.close(writer)
    text = b""
    stuck = False
    while True:
        ready, _, _ = select.select([reader], [], [], 0.5)
        if ready:
            piece = os.read(reader, 65536)
            if not piece:
                break
            text += piece
        place, started, _, _ = STATE.unpack(shared[:])
        if started and time.monotonic() - started > STUCK:
            os.kill(child, signal.SIGKILL)
            stuck = True
            break
    os.close(reader)
    status = os.waitpid(child, 0)[1]
    place, _, taken, refused = STATE.unpack(shared[:])
    counts.update(taken=taken, refused=refused)
    failures += [Failure(kind.name, number, what, why) for what, number, why in map(json.loads, text.splitlines())]
    if status == 0:
        return len(batch)
    if stuck:
        failures.append(Failure(kind.name, batch[place], "hang", f"over {STUCK:.0f} s"))
    else:
        failures.append(Failure(kind.name, batch[place], "crash", f"the process ended with {describe(status)}"))
    return place + 1


def describe(status: int) -> str:
    """Returns how a process ended, in words."""
    code = os.waitstatus_to_exitcode(status)
    return signal.Signals(-code).name if code < 0 else f"code {code}"


def _work(kind: Kind, seed: int, batch: Sequence[int], folder: Path, shared: mmap.mmap, writer: int) -> None:
    """Does a batch of trials, and never returns."""
    code = 1
    try:
        sys.dont_write_bytecode = True
        os.dup2(os.open(folder / "stderr", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)  # decoders write there at will
        _limit_memory()
        scratch = folder / f"scratch-{os.getpid()}"
        tempfile.gettempdir()  # asked for the first time, it tries to write there; torch asks in the middle of a trial
        audit = Audit(scratch)
        verdicts: Counter[str] = Counter()
        for place, number in enumerate(batch):
            shared[:] = STATE.pack(place, time.monotonic(), verdicts["taken"], verdicts["refused"])
            what, why = _try(kind, seed, number, folder, scratch, audit)
            if what in ("taken", "refused"):
                verdicts[what] += 1
            else:
                os.write(writer, json.dumps([what, number, why]).encode() + b"\n")
        shared[:] = STATE.pack(len(batch), 0.0, verdicts["taken"], verdicts["refused"])
        code = 0
    finally:
        os._exit(code)


def _try(kind: Kind, seed: int, number: int, folder: Path, scratch: Path, audit: Audit) -> tuple[str, str]:
    for attempt in range(3):
        trial = Trial(number, chance(SUITE, kind.name, seed, number), folder / "seeds" / kind.name, scratch,
                      scratch / "canary")  # fmt: skip
        os.environ["HOSTILE_CANARY"] = str(trial.canary)
        began = time.process_time()
        audit.on, audit.heard = True, []
        what, why = attack(kind, trial)
        audit.on = False
        seconds = time.process_time() - began
        run = trial.canary.exists()
        if scratch.exists():
            shutil.rmtree(scratch)
        if run or audit.heard:
            return "executed", "; ".join(audit.heard) or "the payload ran"
        if (memory := peak_memory()) > MOST_MEMORY:
            Path("/proc/self/clear_refs").write_text("5")
            return "memory", f"{memory / 2**20:,.0f} MB"
        if seconds <= SLOW or what not in ("taken", "refused"):
            return what, why
        if attempt == 2:  # a busy machine may have been slow once
            return "hang", f"{seconds:.1f} s, {what}"
    raise AssertionError("unreachable")


def attack(kind: Kind, trial: Trial) -> tuple[str, str]:
    """Does one trial; returns what came of it, and why."""
    try:
        kind.attack(trial)
    except Silent as error:
        return "silent", str(error)
    except CruciformError as error:
        return ("refused", "") if str(error).strip() else ("crash", f"{type(error).__name__} without a word")
    except BaseException as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return "crash", f"{type(error).__name__}: {error!s:.200} ({Path(place.filename).name}:{place.lineno})"
    return "taken", ""


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    mapped = pages * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + ADDRESSES, mapped + ADDRESSES))
