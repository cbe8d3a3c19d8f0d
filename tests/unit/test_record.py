import json
from pathlib import Path

import pytest

from cruciform.measure.record import peak_memory, record_result


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
    before = peak_memory()
    held = bytearray(before + 2**24)
    held[:] = b"\1" * len(held)
    assert peak_memory() >= before + 2**24
