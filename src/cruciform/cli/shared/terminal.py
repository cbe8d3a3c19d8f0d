"""Print to the terminal, with everything escaped that a terminal would interpret.

The only file that writes to a terminal; ``tests/house/test_cli_surface.py`` finds others.
"""

import sys
from collections.abc import Iterable
from typing import Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from cruciform.text.escapes import printable


class SafeConsole(Console):
    """A console that escapes texts, newlines too, and what tables and bars make of them."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print objects; one that is text stays on one line."""
        super().print(*(printable(one) if isinstance(one, str) else one for one in objects), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield what is shown of anything, in pieces."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment  # what moves the cursor is rich's own
            else:
                yield Segment(_by_lines(segment.text), segment.style)


def console(*, error: bool = False) -> Console:
    """Return a console that does not fold wide tables when it is not a terminal."""
    looked_at = (sys.stderr if error else sys.stdout).isatty()
    # No markup and no codes of emoji: names of files and messages of engines may hold square brackets and colons.
    return SafeConsole(width=None if looked_at else 160, soft_wrap=True, stderr=error, markup=False, emoji=False)


def echo(text: str, *, error: bool = False, lines: bool = False) -> None:
    """Print text without colors.

    Args:
        text: What to print.
        error: Whether to standard error.
        lines: Whether its newlines are lines, as in JSON; else they are escaped, being part of somebody's name.
    """
    typer.echo(_by_lines(text) if lines else printable(text), err=error)


def _by_lines(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))
