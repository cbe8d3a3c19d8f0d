"""The program as people call it."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from cruciform.cli.main import run

Answer = subprocess.CompletedProcess[str]
Program = Callable[..., Answer]


@pytest.fixture
def cruciform(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Program:
    """The program, run in this process, which spares the time to load torch."""

    def call(*words: object) -> Answer:
        monkeypatch.setattr(sys, "argv", ["cruciform", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            run()
        printed = capsys.readouterr()
        return subprocess.CompletedProcess(words, int(ended.value.code or 0), printed.out, printed.err)

    return call
