"""How shards are written."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ShardOptions:
    """How shards are written.

    Attributes:
        size: Largest size of a shard in bytes, unless a single file is larger.
        short_side: Length that the shorter side of every image is resized to, as a JPEG; None: files are copied.
        seed: Of the shuffled order of samples; None: the order of their names.
        threads: Number of shards written at once.
    """

    size: int = 256 * 10**6
    short_side: int | None = None
    seed: int | None = 0
    threads: int = 2
