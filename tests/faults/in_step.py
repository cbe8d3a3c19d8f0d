"""Faults inside a step: numbers that are none, a thread that reads and dies, a clock that jumps."""

import datetime as dt
import time
from collections.abc import Callable
from typing import Any

import torch
from fault import Trial, Violation, fault
from work import SAMPLES, STEPS, check, check_clean, check_samples, finish, launch, reason, recipe, wait, weights

from cruciform.data.samples.source import ArraySource, Sample
from cruciform.errors import BadSampleError
from cruciform.training.engine.learner import Learner
from cruciform.training.run.run import Run

POLICIES = ("stop", "skip", "rollback")


def poison(step: int, value: float, where: str) -> Callable[[], None]:
    """Returns what puts a number that is none into one step."""

    def arm() -> None:
        real = Learner._accumulate_gradients
        taken = Learner.step

        def stepped(self: Learner, batch: Any, number: int, *more: Any, **options: Any) -> Any:
            self.poisoned = number == step  # type: ignore[attr-defined]
            return taken(self, batch, number, *more, **options)

        def accumulate(self: Learner, *given: Any) -> float:
            loss = real(self, *given)
            if not self.poisoned:  # type: ignore[attr-defined]
                return loss
            for parameter in self.model.parameters():
                if parameter.grad is not None:
                    parameter.grad.fill_(value)
                    break
            if where == "everywhere":
                for buffer in self.model.buffers():
                    if buffer.is_floating_point():
                        buffer.fill_(value)
            return value if where != "gradient" else loss

        Learner.step, Learner._accumulate_gradients = stepped, accumulate  # type: ignore[assignment, method-assign]

    return arm


@fault("F7 NaN and Inf", 36)
def not_a_number(trial: Trial) -> int:
    policy = POLICIES[trial.number % 3]
    step = (0, 3, STEPS // 2, STEPS - 1)[trial.number // 3 % 4]
    value, where = ((torch.nan, "gradient"), (torch.inf, "loss"), (torch.nan, "everywhere"))[trial.number // 12]
    made = recipe(trial.shared, nan_policy=policy)
    runs = [Run(trial.folder / name / "run") for name in ("a", "b")]
    for run in runs:
        run.directory.parent.mkdir()
        code = wait(launch(made, run, poison(step, value, where)))
        check_clean(run)
        hopeless = policy == "stop" or (policy == "rollback" and step == 0)
        if hopeless:
            if code != 6:
                raise Violation("I5", f"{policy} at step {step} ended with {code}, not with 6")
            reason(run, "NonFiniteError")
        elif code:
            raise Violation("I4", f"{policy} at step {step} ended with {code}")
        elif "not finite" not in run.log.read_text():
            raise Violation("I5", "the log does not say what was skipped")
        else:
            check(run, trial.shared, exact=False)
    if not hopeless and weights(runs[0]) != weights(runs[1]):
        raise Violation("I2", "the same fault came to other weights")
    if policy == "stop":
        finish(made, runs[0], trial.shared)  # the number was the machine's, not the network's
    return 2


def breaking(number: int, error: Callable[[], BaseException], times: int) -> Callable[[], None]:
    """Returns what makes reading one sample fail, so many times."""

    def arm() -> None:
        real = ArraySource.__getitem__
        left = [times]

        def read(self: ArraySource, index: int) -> Sample:
            if index == number and len(self) == SAMPLES and left[0]:
                left[0] -= 1
                raise error()
            return real(self, index)

        ArraySource.__getitem__ = read  # type: ignore[method-assign]

    return arm


ERRORS: tuple[tuple[Callable[[], BaseException], str], ...] = (
    (lambda: OSError(5, "Input/output error"), "OSError"),
    (lambda: MemoryError("no more"), "MemoryError"),
    (lambda: RuntimeError("worker died"), "RuntimeError"),
    (lambda: SystemExit(3), "SystemExit"),
    (ZeroDivisionError, "ZeroDivisionError"),
)


@fault("F8 a reader that dies", 24)
def reader(trial: Trial) -> int:
    number = trial.random.randrange(SAMPLES)
    run = Run(trial.folder / "run")
    threads = trial.number % 3
    if trial.number >= 15:
        return bad_sample(trial, run, number, threads)
    error, name = ERRORS[trial.number // 3]
    made = recipe(trial.shared, data={"threads": threads})
    code = wait(launch(made, run, breaking(number, error, 1)), 20)
    if code == 0:
        raise Violation("I5", f"{name} in a reader went unnoticed")
    if run.log.exists():
        reason(run, name)
    finish(made, run, trial.shared)
    return 1


def bad_sample(trial: Trial, run: Run, number: int, threads: int) -> int:
    """One sample can't be read, ever: left out and listed where that is allowed, else the run stops and names it."""
    allowed = trial.number % 2 == 0
    made = recipe(trial.shared, data={"threads": threads, "max_bad": 0.02 if allowed else 0.0})
    code = wait(launch(made, run, breaking(number, lambda: BadSampleError(number, "here", "gone"), 10**6)))
    if allowed:
        if code:
            raise Violation("I4", f"ended with {code}")
        check_samples(run, [one for one in range(SAMPLES) if one != number])
        if run.log.read_text().count("skipped an unreadable sample: here: gone") != 1:
            raise Violation("I3", "what was left out is not listed once")
    else:
        if code != 4:
            raise Violation("I5", f"ended with {code}, not with 4")
        reason(run, "DataError")
        finish(recipe(trial.shared, data={"threads": threads}), run, trial.shared)
    return 1


JUMPS = (86_400.0, -86_400.0, -10 * 365 * 86_400.0, 1.0, -1.0, 3600.0, -0.5, 10 * 365 * 86_400.0)


@fault("F13 a clock that jumps", 16)
def clock(trial: Trial) -> int:
    """The wall clock jumps in the middle of a run; in some trials the steady one leaps ahead, as after a sleep."""
    jump = JUMPS[trial.number % len(JUMPS)]
    steady = trial.number >= len(JUMPS) and jump > 0
    after = trial.random.randrange(1, STEPS)

    def arm() -> None:
        taken = Learner.step
        real, ticking = dt.datetime, time.monotonic
        shift = [0.0]

        class Jumping(dt.datetime):
            @classmethod
            def now(cls, zone: Any = None) -> "dt.datetime":
                return real.now(zone) + dt.timedelta(seconds=shift[0])

        def stepped(self: Learner, batch: Any, number: int, *more: Any, **options: Any) -> Any:
            if number == after:
                shift[0] = jump
            return taken(self, batch, number, *more, **options)

        Learner.step = stepped  # type: ignore[method-assign]
        dt.datetime = Jumping  # type: ignore[misc]
        wall = time.time
        time.time = lambda: wall() + shift[0]
        if steady:
            time.monotonic = lambda: ticking() + shift[0]

    run, made = Run(trial.folder / "run"), recipe(trial.shared)
    code = wait(launch(made, run, arm))
    if code:
        raise Violation("I4", f"ended with {code}")
    check(run, trial.shared)
    newest = sorted((run.directory / "checkpoints").glob("step-*"))[-1]
    for path in newest.iterdir():
        path.unlink()
    newest.rmdir()
    finish(made, run, trial.shared)  # goes on by steps, whatever the times in its log say
    return 1
