"""Tables that templates call by name: the paper's rows, its readings and claims, and the layers of the package.

Each function returns Markdown; ``numbers_in_texts.py`` puts it where a template has ``{{ paper_readings("places") }}``.
"""

import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path

from cruciform.paper.tables import CheckedRow

LAYERS = Path(__file__).parents[1] / "tests" / "house" / "layers.toml"


@cache
def _checked() -> list[CheckedRow]:
    from cruciform.paper.tables import check_tables

    return list(check_tables())


def _of_table(table: str) -> list[CheckedRow]:
    from cruciform.paper.render import by_table

    tables = by_table(_checked())
    if table not in tables:
        raise SystemExit(f"the paper has no table {table!r}; it has {', '.join(tables)}")
    return tables[table]


def paper_counts(table: str) -> str:
    """Return the published and counted MACs and parameters of a table of the paper; other numbers are bold."""
    lines = [
        "| network | top-1 / top-5, % | | published | our count of the reading | as deployed |",
        "|---|---:|---|---:|---:|---:|",
    ]
    for row in _of_table(table):
        published = row.published
        accuracy = f"{100 * published.top1:.2f}" + (f" / {100 * published.top5:.2f}" if published.top5 else "")
        macs = (published.macs, row.macs, row.true_macs)
        params = (published.params, row.params, row.true_params)
        lines.append(f"| {published.network} | {accuracy} | MACs | {_compared(*macs)} |")
        lines.append(f"| | | parameters | {_compared(*params)} |")
    return "\n".join(lines)


def _compared(published: int, *ours: object) -> str:
    cells = [f"{published:,}"]
    for number in ours:
        exact = float(number)  # type: ignore[arg-type]
        text = f"{int(exact):,}" if exact.is_integer() else f"{exact:,.2f}"
        cells.append(text if number == published else f"**{text}**")
    return " | ".join(cells)


def paper_readings(table: str) -> str:
    """Return how the rows of a table are read whose counts are not those of the printed network."""
    from cruciform.paper.render import readings

    return readings(_of_table(table))


def paper_claims() -> str:
    """Return what the paper's text states beside what its numbers say."""
    from cruciform.paper.claims import render_claims

    return render_claims(_checked())


def layers() -> list[tuple[int, str, str]]:
    """Return the layer, name and purpose of every package, from the ground up."""
    table = tomllib.loads(LAYERS.read_text("utf-8"))["layer"]
    return [(number, name, purpose) for number, layer in enumerate(table) for name, purpose in layer.items()]


PAPER: dict[str, Callable[..., str]] = {
    "paper_counts": paper_counts,
    "paper_readings": paper_readings,
    "paper_claims": paper_claims,
}
