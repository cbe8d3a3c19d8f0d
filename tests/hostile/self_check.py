"""Inputs that do all that is forbidden: the watch must name each. Run by a test."""

import ctypes
import json
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import numpy as np
import watch
from kind import Kind, Silent, Trial

from cruciform.errors import DataError


def misbehave(trial: Trial) -> None:
    """Does one bad thing a trial."""
    import pickle
    import socket

    def refuse() -> None:
        raise DataError("no")

    def lie() -> None:
        raise Silent("wrong")

    def run_code() -> None:
        trial.scratch.mkdir()
        trial.canary.touch()

    def connect() -> None:
        with socket.socket() as end:
            end.connect_ex(("127.0.0.1", 9))

    def spin() -> None:
        until = time.process_time() + 1.1
        while time.process_time() < until:
            pass

    deeds = (
        lambda: None,
        refuse,
        lambda: 1 / 0,
        lambda: ctypes.string_at(0),
        spin,
        lambda: time.sleep(60),
        lambda: np.ones(2**28, np.float32).sum(),
        lie,
        run_code,
        lambda: pickle.loads(b"cbuiltins\nlen\n."),  # noqa: S301
        connect,
    )
    deeds[trial.number]()


def main() -> None:
    watch.STUCK, watch.MOST_MEMORY = 5.0, 2**29
    with tempfile.TemporaryDirectory() as folder:
        kind = Kind("self check", 11, misbehave, lambda folder: None)
        counts, failures = watch.run_trials(kind, 0, range(11), Path(folder))
    found = Counter(failure.what for failure in failures) + counts
    print(json.dumps(dict(found)))


if __name__ == "__main__":
    os.environ["PYTHONFAULTHANDLER"] = ""
    main()
