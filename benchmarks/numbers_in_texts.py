"""Writes numbers into the texts: whatever README and docs say is read from ``results/`` or counted, never typed.

    python benchmarks/numbers_in_texts.py            rewrites the blocks of all texts; ``make numbers``

A block is a template in a comment, and below it what readers see::

    <!-- numbers
    Shards are read at {ingest.ingest_vs_bare:.2f} of the speed of a bare loop.
    -->
    Shards are read at 0.95 of the speed of a bare loop.
    <!-- end -->

``{FILE.KEY:FORMAT}`` is a number of the summary of ``results/FILE.json``; ``{FILE[NAME=VALUE,NAME=VALUE].KEY:FORMAT}``
one of the row of its details that has these values; ``{FILE.n}``, ``{FILE.versions.torch}`` whatever else is in the
file. FILE may also be a name of ``counted.py``: what the library itself counts. The format is Python's.
"""

import re
from functools import cache
from pathlib import Path
from typing import Any

from counted import COUNTED, Result, read_file

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"(<!-- numbers\n(.*?)\n-->\n)(?:.*?\n)??(<!-- end -->)", re.DOTALL)
REFERENCE = re.compile(r"\{([\w-]+)(?:\[([^\]]+)\])?\.([\w.-]+?)(?::([^}]+))?\}")


@cache
def read_result(name: str) -> Result:
    """Returns a file of results, or what is counted under this name."""
    return COUNTED[name]() if name in COUNTED else read_file(name)


def look_up(reference: "re.Match[str]") -> str:
    """Returns the number that a reference stands for, as it is to be printed."""
    name, condition, key, form = reference.groups()
    result = read_result(name)
    row = result["summary"]
    if condition:
        wanted = dict(part.split("=", 1) for part in condition.split(","))
        rows = [row for row in result["details"] if all(str(row.get(key)) == value for key, value in wanted.items())]
        if len(rows) != 1:
            raise SystemExit(f"{reference.group()}: {len(rows)} rows of {name} are like this, not one")
        row = rows[0]
    value: Any = row[key] if key in row else _follow(row if condition else result, key.split("."))
    if value is None:
        raise SystemExit(f"{reference.group()}: {name} has {', '.join(row)}")
    return format(value, form or "")


def _follow(value: Any, path: list[str]) -> Any:
    """Returns what lies at the end of a path of keys; None where there is no such path."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def render(text: str) -> str:
    """Returns a text with all its blocks written anew."""
    return BLOCK.sub(lambda block: block[1] + REFERENCE.sub(look_up, block[2]) + "\n" + block[3], text)


def texts() -> list[Path]:
    """Returns the files that may have blocks."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def main() -> None:
    for path in texts():
        old = path.read_text("utf-8")
        new = render(old)
        if new != old:
            path.write_text(new, "utf-8")
            print(f"{path.relative_to(ROOT)}: rewritten")


if __name__ == "__main__":
    main()
