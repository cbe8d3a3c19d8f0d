"""Hostile inputs: a fifth of each kind in CI; all by ``make test-hostile``."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
TARGETS = ("images", "shards", "safetensors", "checkpoint", "recipe")


def run(*options: str, timeout: float) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(HERE / "run.py"), *options],
        capture_output=True, text=True, timeout=timeout, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.mark.slow
@pytest.mark.timeout(420)
def test_a_fifth_of_each_kind_is_refused_or_read_right() -> None:
    result = run("--share", "0.2", "--seed", "1", timeout=400)
    assert result["failures"] == 0
    assert result["inputs"] > 6_000


@pytest.mark.slow
def test_a_trial_can_be_done_again_by_its_number() -> None:
    words = [sys.executable, str(HERE / "run.py"), "--kind", "plans", "--seed", "0", "--trial", "17"]
    one, two = (subprocess.run(words, capture_output=True, text=True, check=False, timeout=120) for _ in range(2))
    assert one.stderr.splitlines()[-1:] == two.stderr.splitlines()[-1:]
    assert one.stdout == two.stdout


@pytest.mark.slow
def test_the_watch_catches_what_it_is_there_for() -> None:
    """A suite that finds nothing must be able to find something."""
    done = subprocess.run([sys.executable, str(HERE / "self_check.py")], capture_output=True, text=True, timeout=120,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {"crash": 2, "hang": 2, "memory": 1, "silent": 1, "executed": 3, "refused": 1, "taken": 1}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.slow
def test_a_short_run_of_the_fuzzer_finds_nothing(target: str, tmp_path: Path) -> None:
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("atheris is not installed: pip install atheris")
    words = [sys.executable, str(HERE / "fuzz" / "harness.py"), target, "-atheris_runs=3000", "-max_total_time=20"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=200, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
