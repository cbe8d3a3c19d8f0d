"""Runs of a benchmark that several processes share: each takes the next one that no other holds.

Every run is a file of its own when it ends and is not run again; interrupted ones are resumed. Runs of the committed
result count as finished, so that another machine continues with the rest.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from finished_rows import read_rows, write_row

from cruciform.cli.shared.run_progress import make_observer
from cruciform.errors import RunError
from cruciform.files import read_text
from cruciform.training.engine.loop import Interrupted
from cruciform.training.experiments.race import Contestant, Finish, run_race
from cruciform.training.run.lock import hold

RUNS = "runs"


@dataclass(frozen=True)
class HeldRuns:
    """The runs of one benchmark.

    Attributes:
        folder: Where runs, their rows and their locks are stored.
        result: The committed result.
        command: The command line, which every run records.
    """

    folder: Path
    result: Path
    command: str = ""

    def recorded(self) -> dict[str, Any]:
        """Return the details of the committed result; nothing where there is none yet."""
        details: dict[str, Any] = json.loads(read_text(self.result))["details"] if self.result.is_file() else {}
        return details

    def finished(self) -> list[Finish]:
        """Return the runs that are finished: those that are recorded, and newer ones of files."""
        rows = [*self.recorded().get(RUNS, ()), *read_rows(self.folder / "rows").values()]
        return [Finish.from_dict(row) for row in {(row["name"], row["seed"]): row for row in rows}.values()]

    def train(self, runs: Iterable[tuple[Contestant, int]], on_finish: Callable[[], object]) -> None:
        """Train all runs that are not finished and that no other process trains.

        A run that is finished with another recipe is an error, so that all runs of a result have the same.

        Args:
            runs: What to train, with the seed, in this order.
            on_finish: Called when a run has ended and its row is kept.
        """
        for contestant, seed in runs:
            key = f"{contestant.name}-{seed}"
            with ExitStack() as stack:
                try:
                    stack.enter_context(hold(self.folder / "held" / key))
                except RunError:
                    print(f"{key}: another process trains it", flush=True)
                    continue
                for finish in run_race(
                    [contestant], [seed], self.folder / "runs", finished=self.finished(), observe=make_observer,
                    command=self.command,
                ):  # fmt: skip
                    write_row(self.folder / "rows", key, finish.to_dict())
                    on_finish()
                    print(f"{key}: {finish.top1:.2%}, {finish.macs / 1e6:.1f} MMAC", flush=True)


def in_parallel(workers: int) -> None:
    """Run this command several times at once, with one thread each; a signal stops them all."""
    words = [*sys.argv, "--workers", "1"]  # the last one counts
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    children = [subprocess.Popen([sys.executable, *words], env=environment) for _ in range(workers)]  # noqa: S603
    try:
        codes = [child.wait() for child in children]
    finally:
        for child in children:
            if child.poll() is None:
                child.terminate()
        for child in children:
            child.wait()
    if any(codes):
        raise SystemExit(f"a process ended with {max(codes, key=abs)}; start the same command again to resume")


def run_until_interrupted(command: Callable[[], object]) -> None:
    """Run a command; where a signal stops it, report how to resume."""
    try:
        command()
    except (Interrupted, KeyboardInterrupt):
        print("interrupted; start the same command again to resume", file=sys.stderr)
        sys.exit(130)
