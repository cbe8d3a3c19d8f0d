"""Progress where no terminal is: a line every few seconds, and none where there is nothing to wait for."""

import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cruciform.cli.shared import heartbeat
from cruciform.cli.shared.progress import measuring, progress_bar


def test_what_is_measured_is_printed_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(heartbeat, "EVERY", 0.02)
    with measuring(20) as tell:
        tell("layer a")
        time.sleep(0.1)
        tell("layer b")
        time.sleep(0.1)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "0 s (limit 20 s): measuring layer a"
    assert lines[-1] == "0 s (limit 20 s): measuring layer b"


def test_how_far_something_is_is_printed_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(heartbeat, "EVERY", 0.02)
    with progress_bar("writing samples") as advance:
        advance(1200, 5000)
        time.sleep(0.1)
    assert "0 s: writing samples, 1,200 of 5,000\n" in capsys.readouterr().err


def test_what_is_quick_prints_nothing_and_no_thread_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError), measuring():
        raise RuntimeError
    assert capsys.readouterr().err == ""
    assert "heartbeat" not in {thread.name for thread in threading.enumerate()}
    assert heartbeat.EVERY == 10


def test_people_at_a_terminal_see_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(heartbeat, "EVERY", 0.02)
    monkeypatch.setattr(heartbeat, "watched", lambda: True)
    with measuring() as tell:
        tell("layer a")
        time.sleep(0.1)
    assert "s: measuring" not in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "line"),
    [
        (
            "deploy nin_c3_lr --target torch --search-seconds 3 --rounds 1 -o out",
            r"^\d+ s \(limit 3 s\): measuring ",
        ),
        ("budget nin --target torch --macs 90% --candidate lr --rounds 1", r"^\d+ s: measuring "),
    ],
)
def test_a_command_without_a_terminal_shows_that_it_works(command: str, line: str, tmp_path: Path) -> None:
    code = (
        "import sys; from cruciform.cli import main; from cruciform.cli.shared import heartbeat; "
        f"heartbeat.EVERY = 0.3; sys.argv = ['cruciform', *{command.split()!r}]; main.run()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(line, done.stderr, re.MULTILINE)) > 2
    assert "\x1b" not in done.stderr
