"""Write directories that are complete or absent, even if the process is killed meanwhile.

Files are written under a hidden name next to the final one and synced; the manifest, with a checksum for each, is
written last and synced; then the directory is synced, renamed, and its parent synced. If the final name exists, the
directory is complete; if it has a manifest, later changes can be detected.
"""

import errno
import fcntl
import glob
import hashlib
import io
import json
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cruciform.errors import DamagedError
from cruciform.text.escapes import printable_json

MANIFEST = "manifest.json"
DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Error numbers of a full disk."""

MOST_JSON = 1 << 26
"""Size limit of JSON files, in bytes."""

FORGOTTEN = 24 * 3600
"""Seconds after which an unfinished directory is taken to be abandoned."""

_PART = ".part-"


def check_regular(path: Path) -> Path:
    """Return a path for another library to read; raise if it is not a regular file, see ``open_regular``."""
    _check_mode(path.stat().st_mode, path)
    return path


def open_regular(path: Path) -> io.BufferedReader:
    """Open a regular file, or a link to one, for reading; all files from outside are opened here.

    Opening a pipe blocks until there is a writer, and a device may be endless or have side effects.
    """
    check_regular(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _check_mode(os.fstat(descriptor).st_mode, path)  # it may have been replaced since
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _check_mode(mode: int, path: Path) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "Not a regular file, but a pipe, a device or a socket", str(path))


def read_bytes(path: Path, *, most: int | None = None) -> bytes:
    """Return the content of a regular file.

    Args:
        path: The file.
        most: Limit in bytes; None: no limit.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if most is not None and size > most:
            raise OSError(errno.EINVAL, f"Has {size:,} bytes; the limit is {most:,}", str(path))
        return file.read()


def read_text(path: Path, *, most: int | None = None) -> str:
    """Return the text of a regular file; see ``read_bytes``."""
    return read_bytes(path, most=most).decode("utf-8")


def sha256(path: Path) -> str:
    """Return the checksum of a file."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Wait until a file, or the entries of a directory, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on a directory; the system releases it when the process ends."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def new_file(path: Path, *, shared: bool = False) -> Iterator[Path]:
    """Yield a temporary file that atomically replaces ``path`` when the block succeeds.

    Args:
        path: Its name.
        shared: Whether others may write it at the same time, as into a cache. Else what a killed process left is
            overwritten by the next.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    part = path.with_name(f"{_PART}{secrets.token_hex(4) + '-' if shared else ''}{path.name}")
    try:
        yield part
        sync(part)
        part.replace(path)
    except OSError as error:
        if error.filename is not None and Path(os.fsdecode(error.filename)) == part:
            error.filename = str(path)  # the name that its reader knows
        raise
    finally:
        if shared:
            part.unlink(missing_ok=True)
    sync(path.parent)


def write_text(path: Path, text: str, *, shared: bool = False) -> None:
    """Replace a small file atomically: readers see the old text or the new one."""
    with new_file(path, shared=shared) as part:
        part.write_text(text, "utf-8")


def write_json(path: Path, data: Any) -> None:
    """Write plain data as indented JSON."""
    path.write_text(printable_json(data, indent=2) + "\n", "utf-8")


def read_json(path: Path) -> Any:
    """Read JSON; raise ``DamagedError`` if it can't be read."""
    try:
        return json.loads(read_text(path, most=MOST_JSON))
    except (OSError, ValueError, RecursionError) as error:  # deep nesting is no JSON of ours
        raise DamagedError(f"{path} can't be read: {error}") from error


@contextmanager
def new_directory(
    directory: Path, *, manifest: Mapping[str, Any] | None = None, parents: bool = True
) -> Iterator[Path]:
    """Yield a temporary directory that gets its name when the block succeeds, and is removed otherwise.

    Args:
        directory: The final name. What bears it already is replaced; the caller has asked whether it may be. Where it
            is a link, what it leads to is replaced.
        manifest: Where given, a manifest is written last: the checksums of all files, and this beside them.
        parents: Whether the directories above it are made where they are missing.
    """
    directory = directory.resolve()
    if parents:
        directory.parent.mkdir(parents=True, exist_ok=True)
    part = _hidden(directory)
    part.mkdir()
    usual = part.stat().st_mode & 0o666  # what the user's umask lets others do
    try:
        yield part
        files = sorted(path for path in part.rglob("*") if path.is_file())
        for path in files:
            if path.stat().st_mode & 0o777 != usual:  # safetensors writes for the owner alone
                path.chmod(usual)
            sync(path)
        if manifest is not None:
            sums = {path.relative_to(part).as_posix(): sha256(path) for path in files}
            whole = {**manifest, "files": sums}
            write_json(part / MANIFEST, {**whole, "checksum": _checksum(whole)})
            sync(part / MANIFEST)
        sync(part)
        _rename(part, directory)
        sync(directory.parent)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    _remove_forgotten(directory)


def refuse_own_place(directory: Path) -> None:
    """Raise if a directory that would be replaced is, or contains, the current directory."""
    if Path.cwd().is_relative_to(directory.resolve()):
        problem = "it is the current directory, and would be replaced; write to another one, such as ./network"
        raise OSError(errno.EBUSY, problem, str(directory))


def _hidden(directory: Path) -> Path:
    return directory.with_name(f"{_PART}{directory.name}-{secrets.token_hex(4)}")


def _remove_forgotten(directory: Path) -> None:
    """Remove abandoned temporary directories of killed processes, but none that may still be in use."""
    for left in directory.parent.glob(f"{_PART}{glob.escape(directory.name)}-{'[0-9a-f]' * 8}"):
        with suppress(OSError):  # another removes it, too
            if time.time() - left.stat().st_mtime > FORGOTTEN:
                shutil.rmtree(left)


def _rename(part: Path, directory: Path) -> None:
    if not directory.exists():
        part.replace(directory)
        return
    # A full directory can't be replaced in one step. The old one steps aside first; should we be killed here, the next
    # sweep finds two that are whole but for their name.
    aside = _hidden(directory)
    directory.replace(aside)
    try:
        part.replace(directory)
    except BaseException:
        aside.replace(directory)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def read_manifest(directory: Path) -> dict[str, Any]:
    """Return the manifest of a directory; raise if a file is missing, unexpected or changed."""
    path = directory / MANIFEST
    manifest = read_json(path)
    if not isinstance(manifest, dict) or manifest.pop("checksum", None) != _checksum(manifest):
        raise DamagedError(f"{path} is damaged: its own checksum differs")
    files = manifest.get("files")
    if not isinstance(files, dict):
        raise DamagedError(f"{path} does not list the files of {directory}")
    found = {path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()} - {MANIFEST}
    if found != set(files):
        odd = ", ".join(sorted(found ^ set(files)))
        raise DamagedError(f"{directory} does not have the files that {MANIFEST} lists; missing or unexpected: {odd}")
    for name, checksum in files.items():
        if sha256(directory / name) != checksum:
            raise DamagedError(f"{directory / name} is damaged: its checksum differs")
    return dict(manifest)


def is_whole(directory: Path) -> bool:
    """Return whether a directory matches its manifest."""
    try:
        read_manifest(directory)
    except DamagedError:
        return False
    return True


def _checksum(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def sweep(parent: Path) -> list[Path]:
    """Remove and return unfinished files of killed processes. Call it only while no other process writes.

    A directory that only lacks its name, since its process was killed between two names, gets it.
    """
    left = sorted(path for path in parent.glob(f"{_PART}*")) if parent.is_dir() else []
    for path in left:
        name = parent / path.name.removeprefix(_PART).rpartition("-")[0]
        if path.is_dir() and not name.exists() and is_whole(path):
            path.replace(name)
    left = [path for path in left if path.exists()]
    for path in left:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    return left
