"""Print tables for people and JSON for programs."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from rich.table import Table

from cruciform.cli.shared.terminal import console, echo
from cruciform.text.escapes import printable, printable_json


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> None:
    """Print a table; the first ``left`` columns are text, the others numbers."""
    # Escaped before their widths are measured.
    table = Table(title=printable(title), title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(printable(column), justify="left" if index < left else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(printable, row))
    console().print(table)


def print_json(data: Any) -> None:
    """Print plain data as JSON, with null for NaN and Inf, which JSON does not have."""
    echo(printable_json(_with_nulls(data), indent=2, allow_nan=False), lines=True)


def _with_nulls(data: Any) -> Any:
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, dict):
        return {key: _with_nulls(value) for key, value in data.items()}
    return [_with_nulls(value) for value in data] if isinstance(data, list | tuple) else data
