"""Numbers with their nouns, and lists that are too long, as people write them."""

from collections.abc import Sequence


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
