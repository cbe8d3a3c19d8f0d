"""Write measured results to JSON, with hardware, versions and the command that reproduces them."""

import datetime as dt
import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from cruciform.files import write_text
from cruciform.machine import processor
from cruciform.text.escapes import printable_json
from cruciform.text.wording import plural

PACKAGES = ("cruciform", "torch", "numpy")


def record_result(
    path: Path,
    *,
    summary: Mapping[str, float],
    details: Any,
    command: str,
    n: int,
    packages: Sequence[str] = (),
) -> None:
    """Write ``results/NAME.json``: a flat summary of numbers, the details, and where they come from.

    The file appears under its name only when it is whole.
    """
    data = {
        "summary": dict(summary),
        "command": command,
        "n": n,
        "date": today(),
        "versions": {"python": platform.python_version(), **versions(packages)},
        "hardware": hardware(),
        "details": details,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, printable_json(data, indent=2) + "\n")


def circumstances(packages: Sequence[str] = ()) -> str:
    """Return date, versions and hardware in a sentence."""
    numbers = ", ".join(f"{name} {number}" for name, number in versions(packages).items())
    machine = hardware()
    cores = plural(machine["cores"], "core")
    return f"{today()}; Python {platform.python_version()}, {numbers}; {machine['processor']}, {cores}."


def today() -> str:
    """Return the date, as files of results have it."""
    return dt.datetime.now(dt.UTC).date().isoformat()


def hardware() -> dict[str, Any]:
    """Return a description of the machine."""
    return {
        "processor": processor.name(),
        "instructions": processor.instructions(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def versions(packages: Sequence[str] = ()) -> dict[str, str]:
    """Return the versions of this library, its dependencies and some further packages."""
    found = {}
    for package in (*PACKAGES, *packages):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def peak_memory() -> int:
    """Return the most bytes of memory that this process has had at once, on Linux."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
