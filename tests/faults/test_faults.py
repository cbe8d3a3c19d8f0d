"""Injected faults: a fifth of all kinds in CI; all by ``make test-faults``."""

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
def test_a_fifth_of_all_faults_violates_nothing() -> None:
    result = run("--share", "0.2", "--seed", "1", "--lanes", "2", timeout=580)
    assert result["violations"] == 0
    assert result["injected"] > 200


CHECKPOINT = "import cruciform.training.run.checkpoint as m; m"
SABOTAGES = [
    (
        "F5",
        f"{CHECKPOINT}.read_manifest = lambda p: {{'format': 1, 'step': int(p.name[5:])}}",
        "I1, durable",
    ),
    (
        "F21",
        "import cruciform.training.run.identity as m; m.compare_fingerprints = lambda *given: []",
        "I5, honest: ended with 0, not with 4",
    ),
    (
        "F22",
        "from cruciform.training.run.identity import Identity; Identity._check_run = lambda *given: None",
        "I5, honest: ended with 0, not with 7",
    ),
    (
        "F23",
        "from cruciform.training.run.identity import Identity; Identity._check_run = lambda *given: None",
        "I5, honest: ended with",
    ),
    (
        "F24",
        "from cruciform.training.run.lock import Lock; Lock.is_lost = lambda self: False",
        "I6, single writer",
    ),
]
"""What is broken in the library, and what the suite must find."""


def sabotaged(kind: str, sabotage: str, least: int) -> str:
    """Does some trials of a kind with something broken; returns what was printed, of a suite that must have failed."""
    code = (
        f"import sys; sys.argv = ['run.py', '--kind', {kind!r}, '--share', '0.02', '--least', '{least}']\n"
        f"sys.path.insert(0, {str(SUITE.parent)!r})\n"
        f"{sabotage}\n"
        "import runpy\n"
        f"runpy.run_path({str(SUITE)!r}, run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "sabotage", "found"), SABOTAGES, ids=[kind for kind, _, _ in SABOTAGES])
def test_a_violation_is_found_and_named(kind: str, sabotage: str, found: str) -> None:
    """A suite that finds nothing must be able to find something: here a check of the library is left out."""
    printed = sabotaged(kind, sabotage, least=4)
    assert found in printed
    assert f"--seed 0 --kind {kind} --trial" in printed


@pytest.mark.slow
def test_a_kind_that_hardly_ever_strikes_is_found_and_named() -> None:
    """It would violate nothing: so three kinds did once, whose injector did not know an argument of a save."""
    printed = sabotaged("F4", "import inject; inject.Failpoint.arm = lambda self: None", least=12)
    assert "--kind F4: empty: struck 0 times in 12 trials" in printed
