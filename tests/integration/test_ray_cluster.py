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

from cruciform.train.journal import read_journal
from cruciform.train.run import Run, find_runs

sys.path.insert(0, str(Path(__file__).parent))
from running import SAMPLES, command, finish, samples_of_epochs, wait_for, workers, write_recipe

pytestmark = [pytest.mark.slow, pytest.mark.timeout(480)]
EPOCHS = 6


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from cruciform.train.backends.ray import import_ray

    ray = import_ray()  # sets Ray to the loopback before it is loaded
    if not ray.util.get_node_ip_address().startswith("127."):
        pytest.skip("another test of this process has loaded Ray before, set to listen beyond the loopback")
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    monkeypatch.setenv("RAY_ADDRESS", made.address)
    try:
        yield made
    finally:
        made.shutdown()


def test_training_goes_on_when_a_node_is_taken_away_and_the_driver_killed(cluster: Any, tmp_path: Path) -> None:
    others = [cluster.add_node(num_cpus=1) for _ in range(2)]
    recipe, run = write_recipe(tmp_path, EPOCHS), tmp_path / "run"
    words = (recipe, "--run", run, "--backend", "ray", "--workers", 2, "--resume")
    process = command(*words)
    wait_for(run, 10, process)
    cluster.remove_node(others[0], allow_graceful=False)
    wait_for(run, 20, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    _wait_until(lambda: not Run(run).is_locked(), "the workers of the killed driver end")
    finish(command(*words), timeout=300)
    status = Run(run).status()
    assert (status["state"], status["epochs"]) == ("done", EPOCHS)
    starts = [line["step"] for line in read_journal(run / "log.jsonl") if line["event"] == "start"]
    assert len(starts) >= 2
    assert starts[-1] >= 12, "it went on from a checkpoint, not from the start"
    for seen in samples_of_epochs(run, EPOCHS, -(-SAMPLES // 16)):
        assert seen == Counter(range(SAMPLES))


def test_a_sweep_goes_on_when_a_worker_is_killed(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    recipe, folder = write_recipe(tmp_path, 4), tmp_path / "sweep"
    process = subprocess.Popen(
        [sys.executable, "-m", "cruciform", "sweep", recipe, "--search", "optimiser.rate=0.001..0.01:log",
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
