"""Grain: prefetching in threads, and shuffling without a list. The only file that imports it, when needed."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

from cruciform.errors import MissingExtraError

T = TypeVar("T")

ROUNDS = 4  # of the cipher; what Grain itself uses


@contextmanager
def read_ahead(read: Callable[[int], T], numbers: range, *, threads: int, buffered: int) -> Iterator[Iterator[T]]:
    """Yield ``read(number)`` for each number, in order, prefetched in threads.

    Args:
        read: Called in threads, for several numbers at once.
        numbers: Its arguments.
        threads: Number of threads; 0: in the caller's thread, without prefetching.
        buffered: Largest number of prefetched results.
    """
    if threads == 0:
        yield map(read, numbers)
        return
    grain = _import_grain()
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=max(threads, buffered))
    iterator = iter(grain.MapDataset.range(numbers.start, numbers.stop).map(read).to_iter_dataset(options))
    try:
        yield iterator
    finally:
        iterator.close()


def shuffled_place(place: int, *, places: int, key: int) -> int:
    """Return the shuffled position of a position: a permutation that is computed, not stored."""
    shuffled: int = _import_grain().experimental.index_shuffle(place, max_index=places - 1, seed=key, rounds=ROUNDS)
    return shuffled


@cache
def _import_grain() -> Any:
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)  # hides Grain's message that JAX is not installed
    try:
        import grain
        import grain.experimental
    except ImportError as error:
        raise MissingExtraError(f"data is read with Grain ({error}): pip install 'cruciform[train]'") from error
    finally:
        logger.setLevel(level)
    return grain
