"""Watches a run by its log, from another process: what an observer would have been told, a moment later."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cruciform.train.journal import read_journal
from cruciform.train.observer import Observer, Plan, StepRecord
from cruciform.train.run import Run

SECONDS = 0.5


@contextmanager
def following(run: Run, observer: Observer) -> Iterator[None]:
    """Tells an observer, within the block, what is added to the log of a run."""
    ended = threading.Event()
    follower = _Follower(run, observer)

    def follow() -> None:
        while not ended.wait(SECONDS):
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
    def __init__(self, run: Run, observer: Observer) -> None:
        self._run, self._observer = run, observer
        self._known = {_key(line) for line in read_journal(run.log)}
        self._step = self._batch = 0

    def look(self) -> None:
        for line in read_journal(self._run.log):
            if _key(line) not in self._known:
                self._known.add(_key(line))
                self._tell(line)

    def _tell(self, line: dict[str, Any]) -> None:
        event, observer = line["event"], self._observer
        if event == "start":
            plan = Plan(self._run.directory, **{name: line[name] for name in Plan._fields if name != "run"})
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


def _key(line: dict[str, Any]) -> tuple[Any, ...]:
    return line["time"], line["event"], line.get("step")
