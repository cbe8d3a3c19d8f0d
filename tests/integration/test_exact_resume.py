"""Killed at random moments and gone on with, a run ends with the weights of one that was left alone: to the bit."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = Path(__file__).parent / "kill_driver.py"


def kill(folder: Path, *options: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, str(DRIVER), str(folder), *options], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, object] = json.loads(done.stdout)
    return result


@pytest.mark.slow
def test_a_few_kills_change_nothing(tmp_path: Path) -> None:
    result = kill(tmp_path, "--kills", "4", "--every", "3")
    assert result["outcomes"] == 1
    assert result["hits"] == 4


@pytest.mark.slow
def test_kills_change_nothing_for_a_network_that_learns_from_another(tmp_path: Path) -> None:
    result = kill(tmp_path, "--kills", "10", "--every", "3", "--distill")
    assert result["outcomes"] == 1
    assert result["hits"] == 10


@pytest.mark.slow
@pytest.mark.parametrize("every", ["3", "0"], ids=["mid-epoch", "epoch edge"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_twenty_kills_change_nothing(tmp_path: Path, optimizer: str, precision: str, every: str) -> None:
    result = kill(
        tmp_path, "--kills", "20", "--optimizer", optimizer, "--precision", precision, "--every", every, "--seed", "7"
    )
    assert result["outcomes"] == 1
    assert result["hits"] == 20
