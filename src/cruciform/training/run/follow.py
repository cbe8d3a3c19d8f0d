"""Follow a run by its log, from another process, and call an observer a moment later."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cruciform.files import open_regular
from cruciform.training.run.journal import parsed
from cruciform.training.run.observer import Observer, Plan, StepRecord
from cruciform.training.run.run import Run

POLL_SECONDS = 0.5


@contextmanager
def following(run: Run, observer: Observer) -> Iterator[None]:
    """Call an observer, within the block, for every line that is added to the log of a run."""
    ended = threading.Event()
    follower = _Follower(run, observer)

    def follow() -> None:
        while not ended.wait(POLL_SECONDS):
            follower.read()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        follower.read()
        observer.on_end("", 0, None)


class _Follower:
    """Reads new lines of a log; an incomplete line is left for the next read."""

    def __init__(self, run: Run, observer: Observer) -> None:
        self._run, self._observer = run, observer
        self._place = run.log.stat().st_size if run.log.is_file() else 0
        self._step = self._batch = 0

    def read(self) -> None:
        if not self._run.log.is_file():
            return
        with open_regular(self._run.log) as file:
            file.seek(self._place)
            for text in file:
                if not text.endswith(b"\n"):
                    return
                self._place += len(text)
                if line := parsed(text):
                    self._report(line)

    def _report(self, line: dict[str, Any]) -> None:
        event, observer = line["event"], self._observer
        if event == "start":
            plan = Plan(
                self._run.directory, **{name: line[name] for name in Plan._fields if name in line and name != "run"}
            )
            self._step, self._batch = plan.step, plan.samples // plan.steps_per_epoch
            observer.on_start(plan)
        elif event == "step":
            samples = (line["step"] - self._step) * self._batch
            self._step = line["step"]
            observer.on_step(StepRecord(line["step"], line["loss"], line["lr"], line["grad_norm"], samples, ()))
        elif event == "epoch":
            observer.on_epoch(line["epoch"], line["step"], line)
        elif event == "notice":
            observer.on_notice(line["message"], line["step"])
