"""The lock of a run: only one process at a time writes, even if the lock file is deleted.

The run's directory itself is locked: if it is deleted and created again, it is another directory, which the holder
detects. The file ``lock`` names the holder; it is locked too, for file systems that can't lock a directory (NFS) and
for older versions of this library, which lock nothing else. Deleting it on such a file system lets a second process
write; the first one detects that before its next write, and stops.
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
"""Error numbers of ``flock`` for file systems that can't lock a directory."""


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
        """Return whether the lock is lost: what was locked is no longer at its path."""
        return not _is_at(self._descriptor, self._path)

    def check(self) -> None:
        """Raise where the lock is lost; called before every write."""
        if self.is_lost():
            what = "it" if self._path == self._directory else f"its file {LOCK}"
            raise RunError(
                f"{self._directory} is no longer locked by this process: {what} was deleted, moved or replaced while "
                "the run was being written. This process stops, because another one may be writing there; resume the "
                "run when no other process does"
            )


@contextmanager
def hold(directory: Path) -> Iterator[Lock]:
    """Lock a directory within the block; raise where another process holds the lock."""
    held: list[int] = []
    try:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            with _where_supported():
                held.append(_open_locked(directory, os.O_RDONLY, fcntl.LOCK_EX))
            file = _open_locked(directory / LOCK, os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX)
            held.append(file)
        except BlockingIOError:
            raise RunError(
                f"{directory} is being written by {_holder(directory)}; wait until it ends, or stop it"
            ) from None
        except (FileExistsError, NotADirectoryError):
            raise RunError(f"{directory} is a file, or inside one; choose another directory for the run") from None
        os.truncate(file, 0)
        os.write(file, f"process {os.getpid()}".encode())
        yield Lock(directory, directory / LOCK if held == [file] else directory, held[0])
    finally:
        for descriptor in held:
            os.close(descriptor)


def is_held(directory: Path) -> bool:
    """Return whether a process holds the lock of a directory."""
    for path in (directory, directory / LOCK):
        try:
            os.close(_open_locked(path, os.O_RDONLY, fcntl.LOCK_SH))
        except BlockingIOError:
            return True
        except (OSError, RunError):  # it does not exist, or can't be locked
            continue
    return False


def _open_locked(path: Path, flags: int, kind: int) -> int:
    """Open and lock a path.

    Raises:
        BlockingIOError: Another process holds a lock on it.
    """
    while True:
        descriptor = os.open(path, flags | os.O_NONBLOCK, 0o666)  # or a pipe would block
        try:
            if not stat.S_ISREG(mode := os.fstat(descriptor).st_mode) and not stat.S_ISDIR(mode):
                raise RunError(f"{path} is not a regular file but a pipe or a device; delete it")
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            if _is_at(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # it was replaced between the two calls


@contextmanager
def _where_supported() -> Iterator[None]:
    """Ignore errors of file systems that can't lock directories."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def _is_at(descriptor: int, path: Path) -> bool:
    """Return whether a descriptor is of the file at a path."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE):  # ESTALE: deleted by another machine
            return False
        raise


def _holder(directory: Path) -> str:
    with suppress(OSError):
        return read_text(directory / LOCK).strip() or "another process"
    return "another process"
