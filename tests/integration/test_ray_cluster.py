"""A Ray cluster of three nodes on this machine: one is taken away, drivers and workers are killed, nothing is lost."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cruciform.training.run.journal import read_journal
from cruciform.training.run.run import Run, find_runs

sys.path.insert(0, str(Path(__file__).parent))
from running import SAMPLES, command, finish, samples_of_epochs, wait_for, workers, write_recipe

pytestmark = [pytest.mark.slow, pytest.mark.timeout(480)]
EPOCHS = 6


class Cluster:
    """Three nodes, each of one CPU, kept by a process of their own: Ray reads once, when loaded, where to listen."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, Path(__file__).parent / "ray_nodes.py"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.address = self._answer()

    def take_node_away(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("take\n")
        self.process.stdin.flush()
        assert self._answer() == "taken"

    def _answer(self) -> str:
        assert self.process.stdout
        for line in self.process.stdout:
            if line.startswith("> "):
                return line[2:].strip()
        raise AssertionError("the cluster's process ended")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    made = Cluster()
    try:
        monkeypatch.setenv("RAY_ADDRESS", made.address)
        yield made
    finally:
        made.process.communicate(timeout=60)  # at the end of its input it takes down all nodes


@pytest.mark.soak
def test_training_goes_on_when_a_node_is_taken_away_and_the_driver_killed(cluster: Cluster, tmp_path: Path) -> None:
    recipe, run = write_recipe(tmp_path, EPOCHS), tmp_path / "run"
    words = (recipe, "--run", run, "--backend", "ray", "--resume")
    process = command(*words, "--workers", 3, "--min-workers", 2)
    wait_for(run, 10, process)
    cluster.take_node_away()
    wait_for(run, 20, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    _wait_until(lambda: not Run(run).is_locked(), "the workers of the killed driver end")
    # Without --min-workers: for 3 minutes Ray would keep the nodes for the dead run.
    finish(command(*words, "--workers", 2), timeout=300)
    status = Run(run).status()
    assert (status["state"], status["epochs"]) == ("done", EPOCHS)
    starts = [line for line in read_journal(run / "log.jsonl") if line["event"] == "start"]
    assert [line["world"] for line in (starts[0], starts[-1])] == [3, 2], "two nodes go on alone"
    assert starts[-1]["step"] >= 12, "it went on from a checkpoint, not from the start"
    for seen in samples_of_epochs(run, EPOCHS, -(-SAMPLES // 16)):
        assert seen == Counter(range(SAMPLES))


@pytest.mark.soak
def test_a_sweep_goes_on_when_a_worker_is_killed(tmp_path: Path) -> None:
    recipe, folder = write_recipe(tmp_path, 4), tmp_path / "sweep"
    process = subprocess.Popen(
        [sys.executable, "-m", "cruciform", "sweep", recipe, "--search", "optimizer.lr=0.001..0.01:log",
         "--trials", "3", "--set", "data.holdout=20", "-o", folder, "--ray", "--workers", "2", "--json"],
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    _wait_until(lambda: any(_step(run) >= 4 for run in find_runs(folder)), "a trial has begun", process)
    victims = workers(process.pid, b"ray::train_trial")
    os.kill(victims[0], signal.SIGKILL)
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    trials = json.loads(output)
    assert sorted(trial["number"] for trial in trials) == [0, 1, 2]
    assert all(trial["top1"] is not None for trial in trials)
    assert sum(Run(run.directory).status()["starts"] for run in find_runs(folder)) == 4, "one was started again"


def _step(run: Run) -> int:
    return max((line.get("step", 0) for line in read_journal(run.log)), default=0)


def _wait_until(done: Any, what: str, process: "subprocess.Popen[str] | None" = None) -> None:
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline:
        if done():
            return
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.1)
    raise AssertionError(f"not within 200 seconds: {what}")
