"""Where files of a data set lie, and how parts of them are read: this machine's disk, or what fsspec reaches.

Whatever comes from elsewhere may fail for a moment: reads are tried again, a bounded number of times, later each time.
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
"""What a data set may be read through. Others, such as those that run a program, are refused."""

TRIES: Final = 4
FIRST_WAIT: Final = 0.2  # seconds; doubled each time
PATIENCE: Final = 60.0  # seconds for one answer over HTTP: a server that sends a byte now and then is as good as dead
MOST_OPEN: Final = 128
T = TypeVar("T")


class Storage(ABC):
    """A folder of files, somewhere."""

    def __init__(self, root: str) -> None:
        self.root = root

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Returns a whole file."""

    @abstractmethod
    def read_range(self, name: str, start: int, length: int) -> bytes:
        """Returns so many bytes of a file, or fewer where it ends before."""

    def where(self, name: str) -> str:
        """Returns how to speak of a file."""
        return f"{self.root}/{name}"


class LocalStorage(Storage):
    """A folder on this machine. Files stay open, the latest ones; several threads may read one at once."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._open: OrderedDict[str, int] = OrderedDict()
        self._lock = Lock()

    def read(self, name: str) -> bytes:
        """Returns a whole file."""
        try:
            return read_bytes(Path(self.root) / name)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise AbsentError(f"{self.where(name)} is not there") from error
        except OSError as error:
            raise DataError(f"{self.where(name)} can't be read: {error.strerror}") from error

    def read_range(self, name: str, start: int, length: int) -> bytes:
        """Returns so many bytes of a file."""
        try:
            with self._lock:  # a descriptor of our own, or another thread might close the file meanwhile
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
    """A folder that fsspec reaches."""

    def __init__(self, root: str) -> None:
        super().__init__(root.rstrip("/"))
        protocol = root.partition("://")[0]
        if protocol not in PROTOCOLS:
            raise DataError(f"{root} can't be read: data sets are read through {', '.join(PROTOCOLS)}")
        import fsspec

        try:
            self._system: Any
            self._system, self._folder = fsspec.core.url_to_fs(self.root, **_options(protocol))
        except ImportError as error:
            raise MissingExtraError(f"{root} needs a package more: {error}") from error

    def read(self, name: str) -> bytes:
        """Returns a whole file."""
        return self._try(name, lambda: bytes(self._system.cat_file(f"{self._folder}/{name}")))

    def read_range(self, name: str, start: int, length: int) -> bytes:
        """Returns so many bytes of a file."""

        def read() -> bytes:
            data = bytes(self._system.cat_file(f"{self._folder}/{name}", start=start, end=start + length))
            if len(data) != length:
                raise OSError(f"{len(data)} bytes came, not {length}")
            return data

        return self._try(name, read)

    def _try(self, name: str, read: Callable[[], T]) -> T:
        for number in range(1, TRIES + 1):
            try:
                return read()
            except FileNotFoundError as error:
                raise AbsentError(f"{self.where(name)} is not there") from error
            except Exception as error:  # every file system of fsspec raises errors of its own
                if number == TRIES:
                    raise DataError(f"{self.where(name)} can't be read after {TRIES} tries: {error}") from error
                # Not all readers again at the same moment.
                time.sleep(FIRST_WAIT * 2 ** (number - 1) * random.uniform(0.5, 1))  # noqa: S311
        raise AssertionError("unreachable")


def _options(protocol: str) -> dict[str, Any]:
    if protocol not in ("http", "https"):
        return {}  # the others' own libraries have bounds
    import aiohttp

    return {"client_kwargs": {"timeout": aiohttp.ClientTimeout(total=PATIENCE)}}


def open_storage(root: str) -> Storage:
    """Returns the folder of a path or an address."""
    if "://" in root and not root.startswith("file://"):
        return RemoteStorage(root)
    return LocalStorage(root.removeprefix("file://"))
