"""The lock of a run: one process at a time writes, also where the lock file is deleted.

The run's directory itself is locked: it can't be deleted and made again without becoming another directory, which the
holder notices. The file ``lock`` names the holder; it is locked as well, for file systems that can't lock a directory
(NFS) and for older versions of this library, which lock nothing else. Whoever deletes it on such a file system opens
the run to a second process; the first one notices before it writes again, and stops.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cruciform.errors import RunError
from cruciform.files import read_text

LOCK = "lock"
_NO_LOCKS = frozenset({errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})
"""Error numbers of ``flock`` that mean: not for a directory on this file system."""


class Lock:
    """A lock that this process holds.

    Args:
        directory: What is locked.
        path: The directory, or its lock file where a directory can't be locked.
        descriptor: Of what was opened and locked under that path.
    """

    def __init__(self, directory: Path, path: Path, descriptor: int) -> None:
        self._directory, self._path, self._descriptor = directory, path, descriptor

    def is_lost(self) -> bool:
        """Tells whether another process may have locked the run: what this one locked is not at its path any more."""
        return not _is_at(self._descriptor, self._path)

    def check(self) -> None:
        """Raises where the lock is lost; called before anything is written."""
        if self.is_lost():
            what = "it" if self._path == self._directory else f"its file {LOCK}"
            raise RunError(
                f"{self._directory} is no longer locked by this process: {what} was deleted, moved or replaced while "
                "the run was being written. This process stops, for another one may write there now; resume the run "
                "from its last checkpoint when no other does"
            )


@contextmanager
def hold(directory: Path) -> Iterator[Lock]:
    """Locks a directory for as long as the block takes, or raises where another process has locked it."""
    held: list[int] = []
    try:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            with _where_supported():
                held.append(_open_locked(directory, os.O_RDONLY, fcntl.LOCK_EX))
            file = _open_locked(directory / LOCK, os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX)
            held.append(file)
        except BlockingIOError:
            raise RunError(f"{directory} is being written by {_holder(directory)}; wait for it, or end it") from None
        except (FileExistsError, NotADirectoryError):
            raise RunError(f"{directory} is, or lies in, a file; choose a directory with --run DIR") from None
        os.truncate(file, 0)
        os.write(file, f"process {os.getpid()}".encode())
        yield Lock(directory, directory / LOCK if held == [file] else directory, held[0])
    finally:
        for descriptor in held:
            os.close(descriptor)


def is_held(directory: Path) -> bool:
    """Tells whether a process holds the lock of a directory now."""
    for path in (directory, directory / LOCK):
        try:
            os.close(_open_locked(path, os.O_RDONLY, fcntl.LOCK_SH))
        except BlockingIOError:
            return True
        except (OSError, RunError):  # nothing is there, or nothing that can be locked
            continue
    return False


def _open_locked(path: Path, flags: int, kind: int) -> int:
    """Opens and locks what is at a path.

    Raises:
        BlockingIOError: Another process holds a lock on it.
    """
    while True:
        descriptor = os.open(path, flags | os.O_NONBLOCK, 0o666)  # or a pipe in its place would be waited for
        try:
            if not stat.S_ISREG(mode := os.fstat(descriptor).st_mode) and not stat.S_ISDIR(mode):
                raise RunError(f"{path} is not a regular file, but a pipe or a device; delete it")
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            if _is_at(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # it was replaced between the two calls, and whoever did so locks the new one


@contextmanager
def _where_supported() -> Iterator[None]:
    """Goes on without a lock on a directory where the file system has none."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def _is_at(descriptor: int, path: Path) -> bool:
    """Tells whether what was opened is what is at a path now."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE):  # the last: deleted by another machine
            return False
        raise


def _holder(directory: Path) -> str:
    with suppress(OSError):
        return read_text(directory / LOCK).strip() or "another process"
    return "another process"
