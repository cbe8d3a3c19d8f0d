"""A profile as people and machines want it: plain data, CSV, and the rows of a table."""

import csv
import io
from dataclasses import asdict

from cruciform.measure.macs import LayerCount, Profile
from cruciform.text.escapes import printable_json

COLUMNS = ("layer", "kind", "plan", "output", "parameters", "MACs", "MACs (paper)")


def profile_json(counted: Profile) -> str:
    """Returns the whole profile as JSON."""
    return printable_json(asdict(counted), indent=2)


def profile_csv(counted: Profile) -> str:
    """Returns a line for each layer and one for the total."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(_cells(row) for row in counted.layers)
    writer.writerow(("total", "", "", "", counted.params, counted.macs, counted.macs_paper))
    return text.getvalue()


def profile_rows(counted: Profile) -> list[tuple[str, ...]]:
    """Returns the cells of a table, numbers with thousands separated."""
    rows = [_cells(row) for row in counted.layers]
    return [tuple(f"{cell:,}" if isinstance(cell, int) else cell for cell in row) for row in rows]


def _cells(row: LayerCount) -> tuple[str | int, ...]:
    output = "×".join(map(str, row.output))
    return (row.name or "(network)", row.kind, row.plan, output, row.params, row.macs, row.macs_paper)
