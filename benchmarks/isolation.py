"""Runs a piece of work in a forked process of its own, and buffers that end at a page which can't be read.

The parent must not have computed anything with several threads: a fork copies one thread only.
"""

import ctypes
import faulthandler
import gc
import mmap
import os
import select
import signal
from collections.abc import Callable

import torch
from torch import Tensor

PAGE = mmap.PAGESIZE
SLACK = 64
"""Bytes behind a buffer that may be read: vector instructions load up to so many at once."""

_LIBC = ctypes.CDLL(None, use_errno=True)
_KEPT: list[mmap.mmap] = []

Report = Callable[[str], None]


def isolated(work: Callable[[Report], None], *, seconds: float) -> tuple[list[str], str]:
    """Runs work in a process of its own.

    Args:
        work: Is given a function that takes lines of text, which come out whatever becomes of the process.
        seconds: After which the process is ended.

    Returns:
        The lines, and how it ended: "ok", or the exit code or signal.
    """
    gc.freeze()  # what is loaded already need not be gone through in every process
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _work(work, writer)
    os.close(writer)
    text = b""
    while select.select([reader], [], [], seconds)[0]:
        more = os.read(reader, 65536)
        if not more:
            break
        text += more
    else:
        os.kill(child, signal.SIGKILL)
    os.close(reader)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    ended = "ok" if status == 0 else signal.Signals(-status).name if status < 0 else f"exit code {status}"
    return text.decode().splitlines(), ended


def _work(work: Callable[[Report], None], writer: int) -> None:
    code = 1
    try:
        faulthandler.disable()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what the allocator says when it finds an overrun
        work(lambda line: os.write(writer, line.encode() + b"\n") and None)
        gc.collect()  # freed blocks are the ones that the allocator checks
        code = 0
    finally:
        os._exit(code)


def before_a_guard_page(tensor: Tensor) -> Tensor:
    """Returns a copy with the same strides whose memory lies between two pages that can be neither read nor written."""
    length = tensor.untyped_storage().nbytes()
    body = -(-(length + SLACK) // PAGE) * PAGE
    memory = mmap.mmap(-1, body + 2 * PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for page in (address, address + PAGE + body):
        if _LIBC.mprotect(ctypes.c_void_p(page), PAGE, 0):
            raise OSError(ctypes.get_errno(), "mprotect")
    _KEPT.append(memory)
    offset = PAGE + (body - length - SLACK) // SLACK * SLACK
    storage = torch.frombuffer(memory, dtype=tensor.dtype, count=length // tensor.element_size(), offset=offset)
    return storage.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).copy_(tensor)
