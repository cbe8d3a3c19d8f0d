"""The only file that imports Grain, which shuffles without a memory and reads ahead in threads."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from cruciform.errors import MissingExtraError

T = TypeVar("T")


@contextmanager
def _without_absl_warnings() -> Iterator[None]:
    """Keeps Grain's remark that JAX is not installed off people's terminals."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


try:
    with _without_absl_warnings():
        import grain
        from grain.experimental import index_shuffle
except ImportError as error:
    raise MissingExtraError(f"data is read with Grain ({error}): pip install 'cruciform[train]'") from error

__all__ = ["index_shuffle", "read_ahead"]


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
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=max(threads, buffered))
    iterator = iter(grain.MapDataset.range(numbers.start, numbers.stop).map(read).to_iter_dataset(options))
    try:
        yield iterator
    finally:
        iterator.close()
