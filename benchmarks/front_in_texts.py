"""The front of accuracy over measured time, for texts: one table, and a sentence for each family.

All is from results/front.json. A template asks ``{% if recorded("front") %}`` first: without the file nothing of it is
written.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from counted import RESULTS, read_file

FRONT = "front"


def front_table() -> str:
    """Return all networks that are trained: accuracy on both data sets, and measured times."""
    from front_runs import CLASSES, all_networks, run_name

    summary = read_file(FRONT)["summary"]
    lines = [
        "| network (MMACs) | 100 classes, % | 10 classes, % | ONNX Runtime, ms, 1 / 16 | OpenVINO, ms | training, s |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for network in all_networks():
        names = [run_name(data_set, network) for data_set in CLASSES]
        trained = [name for name in names if f"{name}_accuracy" in summary]
        if not trained:
            continue
        cells = [
            f"`{network.name}` ({summary[f'{trained[0]}_mmacs']:.0f})",
            *(_accuracy(summary, name) for name in names),
            *(
                _pair([summary.get(f"{trained[0]}_{engine}_ms_b{batch}") for batch in (1, 16)], ".2f")
                for engine in ("onnxruntime", "openvino")
            ),
            _pair([summary.get(f"{name}_train_seconds") for name in names], ",.0f"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _accuracy(summary: Mapping[str, float], name: str) -> str:
    if f"{name}_accuracy" not in summary:
        return "–"
    std = f" ± {summary[f'{name}_accuracy_std']:.2f}" if f"{name}_accuracy_std" in summary else ""
    return f"{summary[f'{name}_accuracy']:.2f}{std} ({summary[f'{name}_seeds']})"


def _pair(values: list[float | None], form: str) -> str:
    return " / ".join("–" if value is None else format(value, form) for value in values)


def front_sentences() -> str:
    """Return for each family, in a sentence, where it wins and where it loses against the cross at equal time."""
    from front_runs import CLASSES

    conclusions = read_file(FRONT)["details"]["conclusions"]
    by_line: dict[str, list[str]] = {}
    for data_set, classes in CLASSES.items():
        rows: dict[str, list[Mapping[str, Any]]] = {}
        for row in conclusions[data_set]["at_equal_time"]:
            rows.setdefault(row["line"], []).append(row)
        for line, found in rows.items():
            by_line.setdefault(line, []).append(f"{_verdict(found)} on {classes} classes{_numbers(found)}")
    return "\n".join(f"- `{line}` {', and '.join(parts)}." for line, parts in by_line.items())


def _verdict(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return who is ahead at equal time by more than two standard errors, at one size or more."""
    if all(row["points"] is None for row in rows):
        return "has no network of equal time"
    if all(row["standard_error"] is None for row in rows):
        return "has single runs"
    clear = {row["points"] > 0 for row in rows if row["exceeds_two_standard_errors"]}
    return {(): "is not distinguishable", (True,): "wins", (False,): "loses"}.get(tuple(clear), "wins and loses")


def _numbers(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the points of each size that has a cross of equal time."""
    found = [
        f"{100 * row['fraction']:.0f} %: {row['points']:+.2f}"
        + ("" if row["standard_error"] is None else f" ± {row['standard_error']:.2f}")
        for row in rows
        if row["points"] is not None
    ]
    return f" ({', '.join(found)})" if found else ""


def front_image() -> str:
    """Return the picture, where it is drawn."""
    return "![accuracy against measured time](front.png)" if (RESULTS.parent / "docs" / "front.png").is_file() else ""


def front_missing() -> str:
    """Return how much is not finished, in a sentence; nothing where all is."""
    missing = read_file(FRONT)["details"]["missing"]
    return f"Not finished, of runs and measured times: {len(missing)}." if missing else ""


FRONTS = {one.__name__: one for one in (front_table, front_sentences, front_image, front_missing)}
