"""Numbers with their nouns, names in short, long lists, tables, and texts of others, as people can read them."""

import json
import unicodedata
from collections.abc import Sequence
from typing import Any


def plural(number: int, noun: str, several: str | None = None) -> str:
    """Returns ``1 thread``, ``2 threads``, ``12,000 classes``.

    Args:
        number: How many.
        noun: What one of them is called.
        several: What several are called; left out: the noun with an s.
    """
    return f"{number:,} {noun if number == 1 else several or f'{noun}s'}"


def listed(names: Sequence[str], most: int = 3) -> str:
    """Returns ``a, b, c and 4 more``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def short_names(names: Sequence[str]) -> list[str]:
    """Returns dotted names without the parts that all of them begin with; each keeps its last part."""
    parts = [name.split(".") for name in names]
    same = 0
    while parts and all(len(one) > same + 1 for one in parts) and len({one[same] for one in parts}) == 1:
        same += 1
    return [".".join(one[same:]) for one in parts]


def text_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Returns a table in plain text.

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


def printable(text: str) -> str:
    r"""Returns text in which all that a terminal obeys or hides is written as an escape, as ``\x1b`` or ``\u202e``.

    Those are control characters, newlines, marks of direction, characters without width, and halves of characters;
    letters of all scripts, emoji and spaces stay. Names of classes, runs and files are other people's, and may hold
    any of them.
    """
    if text.isprintable():
        return text
    return "".join(char if _is_harmless(char) else char.encode("unicode_escape").decode() for char in text)


def printable_json(data: Any, *, indent: int | None = None, allow_nan: bool = True) -> str:
    """Returns plain data as JSON that shows letters of all scripts, and escapes what ``printable`` does."""
    text = json.dumps(data, indent=indent, ensure_ascii=False, allow_nan=allow_nan)
    if text.isprintable():
        return text
    # Newlines are those of the indentation: within texts they are escaped already.
    return "".join(char if char == "\n" or _is_harmless(char) else _json_escape(char) for char in text)


def _is_harmless(char: str) -> bool:
    return char.isprintable() or unicodedata.category(char) == "Zs"  # spaces other than the usual one


def _json_escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[place : place + 2].hex()}" for place in range(0, len(units), 2))
