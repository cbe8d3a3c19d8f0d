"""Escape what a terminal would interpret in texts of others: control characters, marks of direction."""

import json
import unicodedata
from typing import Any


def printable(text: str) -> str:
    r"""Return text in which all that a terminal obeys or hides is written as an escape, as ``\x1b`` or ``\u202e``.

    Those are control characters, newlines, marks of direction, characters without width, and halves of characters;
    letters of all scripts, emoji and spaces stay. Names of classes, runs and files are other people's, and may hold
    any of them.
    """
    if text.isprintable():
        return text
    return "".join(char if _is_harmless(char) else char.encode("unicode_escape").decode() for char in text)


def printable_json(data: Any, *, indent: int | None = None, allow_nan: bool = True) -> str:
    """Return plain data as JSON that shows letters of all scripts, and escapes what ``printable`` does."""
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
