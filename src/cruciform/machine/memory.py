"""Keep freed memory for the next step instead of returning it to the system.

Every step, of training or evaluation, allocates and frees the same large tensors. glibc maps each of them again, and
the system fills its pages with zeros: up to a third of a training step on a CPU.
"""

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # <malloc.h>
NEVER, NONE = -1, 0


def keep_freed_memory() -> bool:
    """Set it for this process; return whether the C library is glibc."""
    if sys.platform != "linux":
        return False
    library = ctypes.CDLL(None)
    try:
        # No mapping at all rather than a higher M_MMAP_THRESHOLD: that one ends at 32 MiB, which is less than the
        # maps of one layer for a batch.
        return bool(library.mallopt(M_MMAP_MAX, NONE) and library.mallopt(M_TRIM_THRESHOLD, NEVER))
    except AttributeError:  # a C library without mallopt
        return False
