"""Injected faults, by the hundred: whatever is killed, full, damaged, stopped or cut off, the invariants hold.

python tests/faults/run.py --record                     all, and records results/faults.json
python tests/faults/run.py --share 0.1                  a tenth of each kind
python tests/faults/run.py --seed 0 --kind F7 --trial 5     one trial once more
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(1, str(Path(__file__).parents[1]))
sys.path.insert(1, str(Path(__file__).parents[1] / "integration"))
import by_signal  # noqa: F401
import elsewhere  # noqa: F401
import in_step  # noqa: F401
import on_disk  # noqa: F401
import swapped  # noqa: F401
import together  # noqa: F401
import torch
from elsewhere import shard_set, trained
from fault import FAULTS, Fault, Trial, Unable, Violation
from kill_driver import import_ahead
from together import undisturbed
from trials import Failure, chance, chosen, table
from work import prepare

from cruciform.measure.record import record_result

SUITE = "faults"
ROOT = Path(__file__).parents[2]
RESULT = ROOT / "results" / "faults.json"
LONGEST = 150.0  # seconds for a trial with all its starts
ENOUGH, LEAST_STRUCK = 10, 1 / 3
"""Of so many trials such a share must strike at the least, or the kind is empty: it holds to all by doing nothing."""


class Outcome(NamedTuple):
    """What came of a trial: how many faults struck, and what was violated."""

    injected: int
    what: str
    why: str


class Running:
    """A trial in a process group of its own, which is ended with it."""

    def __init__(self, fault: Fault, seed: int, number: int, base: Path) -> None:
        self.fault, self.number = fault, number
        self._folder = Path(tempfile.mkdtemp(prefix="trial-", dir=base))
        self._reader, writer = os.pipe()
        self._until = time.monotonic() + LONGEST
        self._child = os.fork()
        if self._child == 0:
            os.setsid()
            trial = Trial(number, chance(SUITE, fault.name, seed, number), base / "shared", self._folder)
            os.write(writer, json.dumps(strike(fault, trial)).encode())
            os._exit(0)
        os.close(writer)

    def outcome(self) -> Outcome | None:
        """Returns what came of it, once it has ended, or has been ended."""
        if os.waitpid(self._child, os.WNOHANG) == (0, 0) and time.monotonic() < self._until:
            return None
        orphans = _end_group(self._child)
        text = os.read(self._reader, 65536)
        os.close(self._reader)
        shutil.rmtree(self._folder, ignore_errors=True)
        if not text:
            return Outcome(0, "I4", f"the trial took more than {LONGEST:.0f} s, or died")
        made = Outcome(*json.loads(text))
        return Outcome(made.injected, "I4", "a process was left behind") if orphans and not made.what else made


def do_all(
    trials: Sequence[tuple[Fault, int]], seed: int, base: Path, lanes: int
) -> Iterator[tuple[Fault, int, Outcome]]:
    """Does trials, some at a time, and yields what came of each as it ends."""
    left, running = list(trials), []
    while left or running:
        while left and len(running) < lanes:
            fault, number = left.pop(0)
            running.append(Running(fault, seed, number, base))
        for one in list(running):
            if outcome := one.outcome():
                running.remove(one)
                yield one.fault, one.number, outcome
        time.sleep(0.005)


def strike(fault: Fault, trial: Trial) -> Outcome:
    try:
        return Outcome(fault.strike(trial), "", "")
    except Unable as error:
        return Outcome(0, "unable", str(error))
    except Violation as error:
        return Outcome(1, error.invariant, str(error))
    except BaseException as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return Outcome(1, "broken", f"{error!r:.300} ({Path(place.filename).name}:{place.lineno})")


def _end_group(leader: int) -> bool:
    """Ends what is left of a trial's processes; returns whether there was anything."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return False
    while True:
        try:
            os.waitpid(-leader, 0)
        except ChildProcessError:
            return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=float, default=1.0, help="of the trials of each kind")
    parser.add_argument("--least", type=int, default=1, help="trials of each kind at the least")
    parser.add_argument("--kind", action="append", help="as F7")
    parser.add_argument("--trial", type=int)
    parser.add_argument("--lanes", type=int, default=3, help="trials at a time")
    parser.add_argument("--record", action="store_true", help="write results/faults.json")
    given = parser.parse_args()
    import_ahead()
    os.environ.update(GLOO_SOCKET_IFNAME="lo", CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1")
    memory = Path("/dev/shm")  # noqa: S108
    base = Path(tempfile.mkdtemp(prefix="faults-", dir=memory if memory.is_dir() else None))
    try:
        (base / "shared").mkdir()
        prepare(base / "shared")
        for make in (shard_set, trained, lambda shared: undisturbed(shared, 2)):
            in_child(make, base / "shared")
        return many(given, base)
    finally:
        shutil.rmtree(base, ignore_errors=True)


def in_child(make: Callable[[Path], object], shared: Path) -> None:
    """Makes something that trials share, in a child: this process stays without threads."""
    child = os.fork()
    if child == 0:
        make(shared)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        raise SystemExit("what trials share could not be made")


def many(given: argparse.Namespace, base: Path) -> int:
    """Does trials of all kinds in turns, so that those that wait share the machine with those that compute."""
    began = time.monotonic()
    kinds = [
        fault
        for fault in sorted(FAULTS.values(), key=lambda fault: int(fault.name.split()[0][1:]))
        if not given.kind or fault.name.split()[0] in given.kind
    ]
    numbers = {
        fault.name: chosen(fault.count, given.share, given.least) if given.trial is None else [given.trial]
        for fault in kinds
    }
    trials = sorted(
        ((fault, number) for fault in kinds for number in numbers[fault.name]), key=lambda pair: pair[1] / pair[0].count
    )
    rows = {fault.name: [fault.name, len(numbers[fault.name]), 0, 0] for fault in kinds}
    failures = []
    able = {fault.name: len(numbers[fault.name]) for fault in kinds}
    print(f"seed {given.seed}, torch {torch.__version__}, {len(trials)} trials", flush=True)
    for done, (fault, number, one) in enumerate(do_all(trials, given.seed, base, given.lanes), 1):
        rows[fault.name][2] += one.injected
        if one.what:
            print(f"  --seed {given.seed} --kind {fault.name.split()[0]} --trial {number}: {one.what}: {one.why}")
        able[fault.name] -= one.what == "unable"
        if one.what and one.what != "unable":
            rows[fault.name][3] += 1
            failures.append(Failure(fault.name, number, one.what, one.why))
        if done % 50 == 0 or done == len(trials):
            seconds = time.monotonic() - began
            print(f"{done} of {len(trials)} trials in {seconds:.0f} s, {len(failures)} violations; "
                  f"about {seconds / done * (len(trials) - done):.0f} s left", flush=True)  # fmt: skip
    for name, count in able.items():
        if count >= ENOUGH and rows[name][2] < LEAST_STRUCK * count:
            why = f"struck {rows[name][2]} times in {count} trials"
            print(f"  --seed {given.seed} --kind {name.split()[0]}: empty: {why}")
            rows[name][3] += 1
            failures.append(Failure(name, 0, "empty", why))
    return report(given, list(rows.values()), failures, time.monotonic() - began)


def report(given: argparse.Namespace, rows: list[list], failures: Sequence[Failure], seconds: float) -> int:
    injected = sum(row[2] for row in rows)
    made = table(("fault", "trials", "injected", "violations"),
                 [*rows, ["all", sum(row[1] for row in rows), injected, len(failures)]])  # fmt: skip
    print(made)
    if given.record:
        summary = {"injected": injected, "violations": len(failures), "kinds": len(rows), "seconds": round(seconds)}
        keys = ("fault", "trials", "injected", "violations")
        details = [{"id": row[0].split()[0], **dict(zip(keys, row, strict=True))} for row in rows]
        record_result(
            RESULT, summary=summary, details=details, command="python tests/faults/run.py --record", n=injected
        )
    print(json.dumps({"injected": injected, "violations": len(failures), "seconds": round(seconds, 1)}))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
