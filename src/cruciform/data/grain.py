"""The only file that imports Grain, which shuffles without a memory and reads ahead in threads. It does when asked."""

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
    """Gives ``read(number)`` for each number, in their order, computed ahead of time.

    Args:
        read: Called in threads, for several numbers at once.
        numbers: What for.
        threads: How many; 0: in the caller's own thread, when asked.
        buffered: How many results wait at most.
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
    """Returns where a place goes in the shuffle of a key: a permutation that is computed, not listed."""
    shuffled: int = _import_grain().experimental.index_shuffle(place, max_index=places - 1, seed=key, rounds=ROUNDS)
    return shuffled


@cache
def _import_grain() -> Any:
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)  # keeps Grain's remark that JAX is not installed off people's terminals
    try:
        import grain
        import grain.experimental
    except ImportError as error:
        raise MissingExtraError(f"data is read with Grain ({error}): pip install 'cruciform[train]'") from error
    finally:
        logger.setLevel(level)
    return grain
