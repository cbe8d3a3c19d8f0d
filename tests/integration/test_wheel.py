"""What users install: the wheel, with its data, and nothing that it should not carry."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def build(into: Path) -> Path:
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(into), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, timeout=240)
    (wheel,) = into.glob("*.whl")
    return wheel


@pytest.mark.slow
def test_the_wheel_carries_its_data_and_is_the_same_when_built_again(tmp_path: Path) -> None:
    first, second = build(tmp_path / "a"), build(tmp_path / "b")
    assert first.read_bytes() == second.read_bytes()
    names = set(zipfile.ZipFile(first).namelist())
    for name in ("py.typed", "models/published.csv", "models/readings.toml", "paper/timings.csv", "cli/main.py"):
        assert f"cruciform/{name}" in names
    assert all(name.startswith(("cruciform/", "cruciform-")) for name in names)
