"""Numbers with their nouns, as people write them."""


def plural(number: int, noun: str, several: str | None = None) -> str:
    """Returns ``1 thread``, ``2 threads``, ``12,000 classes``.

    Args:
        number: How many.
        noun: What one of them is called.
        several: What several are called; left out: the noun with an s.
    """
    return f"{number:,} {noun if number == 1 else several or f'{noun}s'}"
