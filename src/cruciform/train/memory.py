"""Keeps freed memory for the next step, in place of giving it back to the system and asking for it again.

Every step allocates and frees the same large tensors. glibc maps each of them anew, and the system fills its pages with
zeros: about a fifth of a training step on a CPU.
"""

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # <malloc.h>
LARGEST = 32 * 2**20  # glibc refuses more
KEPT = 2**30


def keep_freed_memory() -> bool:
    """Tells the C library so, for this process; returns whether there is one to tell."""
    if sys.platform != "linux":
        return False
    library = ctypes.CDLL(None)
    try:
        return bool(library.mallopt(M_MMAP_THRESHOLD, LARGEST) and library.mallopt(M_TRIM_THRESHOLD, KEPT))
    except AttributeError:  # a C library without mallopt
        return False
