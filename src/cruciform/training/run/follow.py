"""Watches a run by its log, from another process: what an observer would have been told, a moment later."""

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
    """Tells an observer, within the block, what is added to the log of a run."""
    ended = threading.Event()
    follower = _Follower(run, observer)

    def follow() -> None:
        while not ended.wait(POLL_SECONDS):
            follower.look()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        follower.look()
        observer.ended("", 0, None)


class _Follower:
    """Reads on from where it was; a line that is not whole yet is left for the next look."""

    def __init__(self, run: Run, observer: Observer) -> None:
        self._run, self._observer = run, observer
        self._place = run.log.stat().st_size if run.log.is_file() else 0
        self._step = self._batch = 0

    def look(self) -> None:
        if not self._run.log.is_file():
            return
        with open_regular(self._run.log) as file:
            file.seek(self._place)
            for text in file:
                if not text.endswith(b"\n"):
                    return
                self._place += len(text)
                if line := parsed(text):
                    self._tell(line)

    def _tell(self, line: dict[str, Any]) -> None:
        event, observer = line["event"], self._observer
        if event == "start":
            plan = Plan(
                self._run.directory, **{name: line[name] for name in Plan._fields if name in line and name != "run"}
            )
            self._step, self._batch = plan.step, plan.samples // plan.steps_per_epoch
            observer.started(plan)
        elif event == "step":
            samples = (line["step"] - self._step) * self._batch
            self._step = line["step"]
            observer.stepped(StepRecord(line["step"], line["loss"], line["rate"], line["norm"], samples, ()))
        elif event == "epoch":
            observer.finished_epoch(line["epoch"], line["step"], line)
        elif event == "notice":
            observer.noticed(line["what"], line["step"])
