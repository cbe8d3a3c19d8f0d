"""Faults by signal and by people: killed at any moment, asked to end, hung up on, started twice."""

import os
import signal
import time

from fault import Trial, Violation, fault
from work import DEADLINE, check_clean, finish, last_line, launch, recipe, wait

from cruciform.training.run.run import Run

KILLS = 6
LONGEST = 0.2  # seconds; a start whose modules are there takes about as long


@fault("F1 kill -9 anywhere", 60)
def kill(trial: Trial) -> int:
    run, made = Run(trial.folder / "run"), recipe(trial.shared)
    hits = 0
    for _ in range(KILLS):
        child = launch(made, run)
        time.sleep(trial.random.uniform(0.001, LONGEST))
        os.kill(child, signal.SIGKILL)
        code = wait(child)
        if code not in (0, -signal.SIGKILL):
            raise Violation("I4", f"it could not be gone on with after a kill: code {code}")
        hits += code < 0
        check_clean(run)
    finish(made, run, trial.shared)
    return hits


ENDINGS: tuple[tuple[int, ...], ...] = (
    (signal.SIGTERM,),
    (signal.SIGTERM, signal.SIGTERM),
    (signal.SIGINT,),
    (signal.SIGINT, signal.SIGINT),
    (signal.SIGHUP,),
    (signal.SIGTERM, signal.SIGINT),
    (signal.SIGTERM, signal.SIGKILL),
)


@fault("F6 asked to end", 42)
def ask(trial: Trial) -> int:
    """SIGTERM, once and twice, SIGINT, SIGHUP: saved at the end of a step, in time, and said so."""
    run, made = Run(trial.folder / "run"), recipe(trial.shared)
    signals = ENDINGS[trial.number % len(ENDINGS)]
    child = launch(made, run)
    until = time.monotonic() + DEADLINE
    while not last_line(run) and time.monotonic() < until:  # before its first line there is nothing to save
        time.sleep(0.002)
    time.sleep(trial.random.uniform(0, 0.15))
    began = time.monotonic()
    for number in signals:
        os.kill(child, number)
        time.sleep(trial.random.uniform(0, 0.01))
    code = wait(child, 30)
    allowed = {128 + signals[0], 128 + signals[-1], 0}
    if signals[-1] == signal.SIGKILL:
        allowed.add(-signal.SIGKILL)
    if code not in allowed:
        raise Violation("I5", f"after {signals} it ended with {code}")
    if time.monotonic() - began > 10:
        raise Violation("I4", "it took more than 10 s to end")
    last = last_line(run)
    if code > 128 and (last.get("event"), last.get("state")) != ("end", "interrupted"):
        raise Violation("I5", f"the log ends with {last}")
    if code == 128 + signals[0] and len(signals) == 1:
        checkpoint, _ = run.checkpoints().load_newest()
        if checkpoint is None or checkpoint.step != last["step"]:
            raise Violation("I1", f"it ended at step {last['step']} and has not saved it")
    finish(made, run, trial.shared)
    return len(signals) if code else 0


@fault("F20 started twice", 24)
def race(trial: Trial) -> int:
    """Eight starts of one run at the same moment: one wins, the others are told."""
    run, made = Run(trial.folder / "run"), recipe(trial.shared)
    gate = time.monotonic() + 0.15
    log = trial.folder / "won"

    def arm() -> None:
        # The one that has the lock shall hold it until all others have tried.
        from cruciform.training.engine import loop

        real = loop.open_datasets

        def slow(*given: object) -> object:
            descriptor = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
            os.write(descriptor, b"x")
            time.sleep(0.8)
            return real(*given)  # type: ignore[arg-type]

        loop.open_datasets = slow  # type: ignore[assignment]
        time.sleep(max(0.0, gate - time.monotonic()))

    children = [launch(made, run, arm) for _ in range(8)]
    codes = [wait(child) for child in children]
    winners = log.stat().st_size if log.exists() else 0
    if winners != 1 or codes.count(0) != 1 or codes.count(7) != 7:
        raise Violation("I6", f"{winners} wrote; the codes are {codes}")
    if sum(line.count('"event": "start"') for line in run.log.read_text().splitlines()) != 1:
        raise Violation("I6", "the log has more than one start")
    finish(made, run, trial.shared)
    return 1
