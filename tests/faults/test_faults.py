"""Injected faults: two fifths of all kinds in CI; all by ``make test-faults``."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SUITE = Path(__file__).parent / "run.py"


def run(*options: str, timeout: float) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(SUITE), *options],
        capture_output=True, text=True, timeout=timeout, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-4000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_fifths_of_all_faults_violate_nothing() -> None:
    result = run("--share", "0.4", "--seed", "1", "--lanes", "2", timeout=580)
    assert result["violations"] == 0
    assert result["injected"] > 400


@pytest.mark.slow
def test_a_violation_is_found_and_named(tmp_path: Path) -> None:
    """A suite that finds nothing must be able to find something: here checkpoints are not checked when read."""
    code = (
        "import sys; sys.argv = ['run.py', '--kind', 'F5', '--share', '0.02']\n"
        f"sys.path.insert(0, {str(SUITE.parent)!r})\n"
        "import runpy, cruciform.train.checkpoint as module\n"
        "module.read_manifest = lambda path: {'format': 1, 'step': int(path.name[5:])}\n"
        f"runpy.run_path({str(SUITE)!r}, run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "I1, durable" in done.stdout
    assert "--seed 0 --kind F5 --trial" in done.stdout
