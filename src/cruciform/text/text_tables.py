"""Tables as plain text and as HTML, which notebooks show."""

from collections.abc import Sequence
from html import escape


def text_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Return a table in plain text.

    Args:
        columns: What stands above each.
        rows: Their cells.
        left: How many columns are text; the others are numbers, and end below one another.
    """
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.ljust(width) if index < left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "  ".join(padded).rstrip()

    return "\n".join([line(columns), line(["-" * width for width in widths]), *map(line, rows)])


def html_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: int = 1,
    caption: str = "",
    notes: Sequence[str] = (),
) -> str:
    """Return a table as HTML, with all texts escaped.

    Args:
        columns: The headers.
        rows: The cells.
        left: How many columns are text, aligned left; the others are numbers, aligned right.
        caption: A sentence above the table.
        notes: Sentences below the table.
    """
    sides = ["left" if index < left else "right" for index in range(len(columns))]

    def row(tag: str, cells: Sequence[str]) -> str:
        pairs = zip(cells, sides, strict=True)
        return f"<tr>{''.join(_cell(tag, text, side) for text, side in pairs)}</tr>"

    body = "".join(row("td", cells) for cells in rows)
    head = f"<caption>{escape(caption)}</caption>" if caption else ""
    below = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return f"<table>{head}<thead>{row('th', columns)}</thead><tbody>{body}</tbody></table>{below}"


def _cell(tag: str, text: str, side: str) -> str:
    return f'<{tag} style="text-align:{side}">{escape(text)}</{tag}>'
