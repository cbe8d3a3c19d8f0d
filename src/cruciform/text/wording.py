"""Numbers with their nouns, long lists and dotted names, in short."""

from collections.abc import Sequence


def plural(number: int, noun: str, several: str | None = None) -> str:
    """Return ``1 thread``, ``2 threads``, ``12,000 classes``.

    Args:
        number: How many.
        noun: What one of them is called.
        several: What several are called; left out: the noun with an s.
    """
    return f"{number:,} {noun if number == 1 else several or f'{noun}s'}"


def listed(names: Sequence[str], most: int = 3) -> str:
    """Return ``a, b, c and 4 more``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def short_names(names: Sequence[str]) -> list[str]:
    """Return dotted names without the parts that all of them begin with; each keeps its last part."""
    parts = [name.split(".") for name in names]
    same = 0
    while parts and all(len(one) > same + 1 for one in parts) and len({one[same] for one in parts}) == 1:
        same += 1
    return [".".join(one[same:]) for one in parts]
