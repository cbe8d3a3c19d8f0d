import json
import subprocess
import sys
from pathlib import Path

import pytest

from cruciform.measure.record import record_result


def test_a_result_is_written_whole_with_its_circumstances(tmp_path: Path) -> None:
    path = tmp_path / "results" / "x.json"
    record_result(path, summary={"a": 1.5}, details=[1], command="make bench", n=3, packages=("no-such-package",))
    data = json.loads(path.read_text("utf-8"))
    assert (data["summary"], data["command"], data["n"], data["details"]) == ({"a": 1.5}, "make bench", 3, [1])
    assert data["versions"]["no-such-package"] == "not installed"
    assert data["hardware"]["cores"] >= 1
    assert [p.name for p in path.parent.iterdir()] == ["x.json"]


def test_a_result_that_can_not_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    record_result(path, summary={"a": 1}, details=None, command="", n=1)
    with pytest.raises(TypeError):
        record_result(path, summary={"a": 2}, details=object(), command="", n=1)
    assert json.loads(path.read_text("utf-8"))["summary"] == {"a": 1}


def test_the_peak_of_memory_rises_with_what_is_held() -> None:
    # In a process of its own, whose peak is small: to rise above it takes as much memory again.
    script = """
from cruciform.measure.record import peak_memory
before = peak_memory()
held = b"1" * (before + 2**24)
print(peak_memory() - before >= 2**24)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
