"""``cruciform.write_shards`` and ``cruciform.verify_shards``: images as WebDataset shards."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cruciform.data.shard_verify import Problem
    from cruciform.data.sharding.shard_index import Manifest
    from cruciform.data.sharding.shard_options import ShardOptions


def write_shards(
    images: str | Path,
    out: str | Path,
    options: "ShardOptions | None" = None,
    *,
    on_progress: Callable[[int, int], None] = lambda done, of: None,
) -> "Manifest":
    """Write images as tar shards with an index and a manifest, or resume an interrupted call.

    Args:
        images: A folder with one subfolder for each class, or a .csv file with the columns path and label.
        out: The folder to write into, such as ``shards/train``.
        options: Shard size, resizing, shuffling and threads.
        on_progress: Called with the number of samples written, and of all.
    """
    from cruciform.data.shard_write import list_items
    from cruciform.data.shard_write import write_shards as write
    from cruciform.data.sharding.shard_options import ShardOptions

    return write(list_items(Path(images)), Path(out), options or ShardOptions(), on_progress=on_progress)


def verify_shards(
    folder: str | Path, *, threads: int = 2, on_progress: Callable[[int, int], None] = lambda done, of: None
) -> "list[Problem]":
    """Verify the checksum of every shard; return all that are damaged, missing, swapped or unexpected.

    Args:
        folder: The folder with the shards.
        threads: Number of files read at once.
        on_progress: Called with the number of files read, and of all.
    """
    from cruciform.data.shard_verify import verify_shards as verify

    return verify(Path(folder), threads=threads, on_progress=on_progress)
