"""Storage of data sets: the local disk, or what fsspec reads.

Remote reads are retried a few times, with exponential backoff.
"""

import os
import random
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any, Final, TypeVar

from cruciform.errors import AbsentError, DataError, MissingExtraError
from cruciform.files import check_regular, read_bytes

PROTOCOLS: Final = ("file", "memory", "http", "https", "s3", "gs")
"""Protocols that data sets may be read through. Others, such as those that run a program, are refused."""

TRIES: Final = 4
FIRST_WAIT: Final = 0.2  # seconds; doubled each time
TIMEOUT: Final = 60.0  # seconds for one HTTP response, even from a server that sends a byte now and then
MOST_OPEN: Final = 128
T = TypeVar("T")


class Storage(ABC):
    """A local or remote folder of files."""

    def __init__(self, root: str) -> None:
        self.root = root

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Return the contents of a file."""

    @abstractmethod
    def read_range(self, name: str, start: int, length: int) -> bytes:
        """Return ``length`` bytes of a file, or fewer where it ends before."""

    def where(self, name: str) -> str:
        """Return the location of a file, for messages."""
        return f"{self.root}/{name}"


class LocalStorage(Storage):
    """A local folder. The most recent files stay open; several threads may read one at once."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._open: OrderedDict[str, int] = OrderedDict()
        self._lock = Lock()

    def read(self, name: str) -> bytes:
        """Return the contents of a file."""
        try:
            return read_bytes(Path(self.root) / name)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise AbsentError(f"{self.where(name)} does not exist") from error
        except OSError as error:
            raise DataError(f"{self.where(name)} can't be read: {error.strerror}") from error

    def read_range(self, name: str, start: int, length: int) -> bytes:
        """Return ``length`` bytes of a file."""
        try:
            with self._lock:  # a duplicate: another thread might close the file meanwhile
                descriptor = os.dup(self._descriptor(name))
            try:
                return os.pread(descriptor, length, start)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise DataError(f"{self.where(name)} can't be read: {error.strerror}") from error

    def _descriptor(self, name: str) -> int:
        if name in self._open:
            self._open.move_to_end(name)
            return self._open[name]
        descriptor = os.open(check_regular(Path(self.root) / name), os.O_RDONLY | os.O_NONBLOCK)
        self._open[name] = descriptor
        if len(self._open) > MOST_OPEN:
            os.close(self._open.popitem(last=False)[1])
        return descriptor

    def __del__(self) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)


class RemoteStorage(Storage):
    """A remote folder, read by fsspec."""

    def __init__(self, root: str) -> None:
        super().__init__(root.rstrip("/"))
        protocol = root.partition("://")[0]
        if protocol not in PROTOCOLS:
            raise DataError(f"{root} can't be read: the protocol must be one of {', '.join(PROTOCOLS)}")
        import fsspec

        try:
            self._system: Any
            self._system, self._folder = fsspec.core.url_to_fs(self.root, **_options(protocol))
        except ImportError as error:
            raise MissingExtraError(f"{root} needs another package: {error}") from error

    def read(self, name: str) -> bytes:
        """Return the contents of a file."""
        return self._try(name, lambda: bytes(self._system.cat_file(f"{self._folder}/{name}")))

    def read_range(self, name: str, start: int, length: int) -> bytes:
        """Return ``length`` bytes of a file."""

        def read() -> bytes:
            data = bytes(self._system.cat_file(f"{self._folder}/{name}", start=start, end=start + length))
            if len(data) != length:
                raise OSError(f"received {len(data)} bytes, not {length}")
            return data

        return self._try(name, read)

    def _try(self, name: str, read: Callable[[], T]) -> T:
        for number in range(1, TRIES + 1):
            try:
                return read()
            except FileNotFoundError as error:
                raise AbsentError(f"{self.where(name)} does not exist") from error
            except Exception as error:  # every fsspec file system raises its own errors
                if number == TRIES:
                    raise DataError(f"{self.where(name)} can't be read after {TRIES} attempts: {error}") from error
                # Jitter, so that not all readers retry at once.
                time.sleep(FIRST_WAIT * 2 ** (number - 1) * random.uniform(0.5, 1))  # noqa: S311
        raise AssertionError("unreachable")


def _options(protocol: str) -> dict[str, Any]:
    if protocol not in ("http", "https"):
        return {}  # the libraries of the others have timeouts
    import aiohttp

    return {"client_kwargs": {"timeout": aiohttp.ClientTimeout(total=TIMEOUT)}}


def open_storage(root: str) -> Storage:
    """Return the storage of a path or URL."""
    if "://" in root and not root.startswith("file://"):
        return RemoteStorage(root)
    return LocalStorage(root.removeprefix("file://"))
