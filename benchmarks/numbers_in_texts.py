"""Render the texts from their templates, so that no measured or counted number in them is typed.

    python benchmarks/numbers_in_texts.py            writes every generated text; ``make numbers``

A template is a file of ``docs/templates/``: ``README.md.in`` and ``ARCHITECTURE.md.in`` become files of the project's
root, ``deploy.md.in`` becomes ``docs/deploy.md``. It is Markdown with two additions:

- A reference is replaced by a number: ``{ingest.ingest_vs_bare:.2f}``. ``{FILE.KEY:FORMAT}`` is a value of the summary
  of ``results/FILE.json``; ``{FILE[NAME=VALUE,NAME=VALUE].KEY:FORMAT}`` one of the row of its details that has these
  values; ``{FILE.n}``, ``{FILE.versions.torch}`` whatever else is in the file. FILE may also be a name of
  ``counted.py``: what the library itself counts. The format is Python's.
- Jinja2 repeats a row: ``{% for scheme in ["lr", "lr-join"] %}`` … ``{% endfor %}``, with ``{{ scheme }}`` in a
  reference too; ``rows("FILE")`` gives the rows of a file. Jinja2 comes with torch, and its loops need no explanation.
  ``{% if recorded("FILE", "KEY") %}`` leaves out what is not in a file of results yet.
"""

import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

from counted import COUNTED, Result, read_file
from front_in_texts import FRONTS
from jinja2 import Environment, StrictUndefined
from paper_in_texts import PAPER, layers
from table_in_texts import TRAINED

ROOT = Path(__file__).parents[1]
TEMPLATES = ROOT / "docs" / "templates"
IN_THE_ROOT = {"README.md", "ARCHITECTURE.md"}
REFERENCE = re.compile(r"\{([\w-]+)(?:\[([^\]]+)\])?\.([\w.-]+?)(?::([^}]+))?\}")
HEADER = "<!-- Generated from docs/templates/{} by `make numbers`: edit the template, not this file. -->\n"


@cache
def read_result(name: str) -> Result:
    """Return a file of results, or what is counted under this name."""
    return COUNTED[name]() if name in COUNTED else read_file(name)


def rows(name: str, /, **wanted: str) -> list[dict[str, Any]]:
    """Return the rows of a file of results that have these values."""
    return [row for row in read_result(name)["details"] if all(str(row.get(key)) == wanted[key] for key in wanted)]


def look_up(reference: "re.Match[str]") -> str:
    """Return the number that a reference stands for, as it is printed."""
    name, condition, key, form = reference.groups()
    result = read_result(name)
    row = result["summary"]
    if condition:
        found = rows(name, **dict(part.split("=", 1) for part in condition.split(",")))
        if len(found) != 1:
            raise SystemExit(f"{reference.group()}: {len(found)} rows of {name} match, expected one")
        row = found[0]
    value: Any = row[key] if key in row else _follow(row if condition else result, key.split("."))
    if value is None:
        raise SystemExit(f"{reference.group()}: {name} has {', '.join(row)}")
    return format(value, form or "")


def _follow(value: Any, path: list[str]) -> Any:
    """Return the value at the end of a path of keys; None where there is no such path."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def render(template: str) -> str:
    """Return the text that a template stands for: loops first, then references."""
    environment = Environment(  # noqa: S701  (Markdown is not escaped)
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined
    )
    text = environment.from_string(template).render(rows=rows, layers=layers, **PAPER, **TRAINED, **FRONTS)
    return REFERENCE.sub(look_up, text)


def generated() -> dict[Path, Path]:
    """Return the template of every generated text."""
    found = {}
    for template in sorted(TEMPLATES.rglob("*.md.in")):
        name = template.relative_to(TEMPLATES).as_posix().removesuffix(".in")
        found[ROOT / name if name in IN_THE_ROOT else ROOT / "docs" / name] = template
    return found


def render_file(template: Path) -> str:
    """Return the whole text of a template, with the line that names where it comes from."""
    return HEADER.format(template.relative_to(TEMPLATES).as_posix()) + render(template.read_text("utf-8"))


def main() -> None:
    for path, template in generated().items():
        new = render_file(template)
        if not path.exists() or new != path.read_text("utf-8"):
            path.write_text(new, "utf-8")
            print(f"{path.relative_to(ROOT)}: written")


if __name__ == "__main__":
    sys.exit(main())
