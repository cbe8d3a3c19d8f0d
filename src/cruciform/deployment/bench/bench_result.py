"""Results of ``bench`` as a file: ``results/bench-SUITE.json``, one part per engine, batch size and thread count.

A part is measured in one run and has its own baseline, so parts may come from several runs and machines, and an
interrupted run keeps the parts that it finished. Each part records where it comes from.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cruciform.deployment.bench.bench import Bench, Row, Suite
from cruciform.deployment.targets.target import TARGETS
from cruciform.errors import OptionError
from cruciform.files import read_text
from cruciform.measure.record import hardware, record_result, today, versions
from cruciform.text.wording import plural

SHORT = {"onnxruntime": "ort", "openvino": "ov", "executorch": "et", "aotinductor": "aoti"}


def describe(bench: Bench) -> dict[str, Any]:
    """Return a bench as plain data."""
    return {
        "comparison": bench.suite.label,
        "target": bench.target,
        "batch": bench.batch,
        "threads": bench.threads,
        "clock": "CPU time" if bench.threads == 1 else "wall-clock time",
        "date": today(),
        "baseline_target": bench.baseline_target,
        "baseline_gmacs_per_second": bench.gmacs_per_second,
        "rivals": bench.rivals,
        "networks": {row.network: _describe_row(row) for row in (bench.baseline, *bench.rows)},
    }


def summarize(bench: Bench) -> dict[str, float]:
    """Return the realised fractions of a bench under short names, as ort_f32_b16_lr."""
    precision = TARGETS.get(bench.target).precision
    family = bench.target.removesuffix(f"-{precision}").replace("-", "_")
    threads = f"_t{bench.threads}" if bench.threads > 1 else ""
    batch = f"_b{bench.batch}" if bench.suite.keyed_by_batch or bench.batch > 1 else ""
    start = f"{SHORT.get(family, family)}_{precision}{batch}{threads}"
    return {f"{start}_{bench.suite.networks[row.network]}": round(row.realised, 3) for row in bench.rows}


def check_result(path: Path, suite: Suite) -> None:
    """Raise where a bench of a suite could not be recorded in a file, or in place of another's."""
    if not path.is_file():
        return
    try:
        parts = read_parts(path)
        other = [p for p in parts if p.get("comparison", "") == suite.label and suite.baseline not in p["networks"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise OptionError(f"{path} is not a result of 'cruciform bench' ({error!r}); choose another file") from error
    if other:
        raise OptionError(f"{path} has results of {next(iter(other[0]['networks']))}; choose another file")


def record_bench(bench: Bench, path: Path, *, command: str, packages: Sequence[str]) -> None:
    """Write a bench into a file of results; parts that were there already stay, unless it is the same one."""
    known = json.loads(read_text(path)) if path.is_file() else {"summary": {}, "details": {}}
    name = f"{bench.target}, batch {bench.batch}, {plural(bench.threads, 'thread')}"
    name = f"{bench.suite.label}, {name}" if bench.suite.label else name
    part = {
        **describe(bench),
        "command": command,
        "n": len(bench.baseline.timing.rounds),
        "versions": versions(packages),
        "hardware": hardware(),
    }
    parts = {**known["details"], name: part}
    record_result(
        path,
        summary={**known["summary"], **summarize(bench)},
        details=parts,
        command="; ".join(dict.fromkeys(part["command"] for part in parts.values() if "command" in part)),
        n=min(len(row["milliseconds_rounds"]) for part in parts.values() for row in part["networks"].values()),
        packages=packages,
    )


def read_parts(path: Path) -> list[dict[str, Any]]:
    """Return the parts of a file of results, each as ``describe`` has it."""
    return list(json.loads(read_text(path))["details"].values())


def _describe_row(row: Row) -> dict[str, Any]:
    return {
        "macs": row.macs,
        "milliseconds": 1e3 * row.timing.best,
        "milliseconds_median": 1e3 * row.timing.middle,
        "milliseconds_rounds": [round(1e3 * seconds, 3) for seconds in row.timing.rounds],
        "realised": row.realised,
        "way": row.build.way,
        "forms": dict(row.build.forms),
    }
