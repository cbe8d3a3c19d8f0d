"""Verify a set of shards: every file is read and compared with its checksum."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from cruciform.data.shard_write import PARTS
from cruciform.data.sharding.shard_index import MANIFEST, File, Manifest
from cruciform.errors import DataError
from cruciform.files import read_bytes, sha256


class Problem(NamedTuple):
    """A problem with a file of a set of shards.

    Attributes:
        file: Its name.
        what: ``missing``, ``damaged``, ``swapped``, ``unexpected`` or ``unfinished``.
        why: The details.
    """

    file: str
    what: str
    why: str


def verify_shards(
    folder: Path, *, threads: int = 2, on_progress: Callable[[int, int], None] = lambda done, of: None
) -> list[Problem]:
    """Return all problems of a set of shards.

    Args:
        folder: Its location.
        threads: Number of files read at once.
        on_progress: Called with the number of files read, and of all.
    """
    try:
        text = read_bytes(folder / MANIFEST)
    except OSError as error:
        raise DataError(
            f"{folder} is not a complete set of shards: its {MANIFEST} can't be read ({error.strerror})"
        ) from error
    manifest = Manifest.from_json(text, str(folder / MANIFEST))
    files = (*manifest.shards, manifest.index, manifest.names)
    owners = {file.sha256: file.name for file in files}
    problems = []
    with ThreadPoolExecutor(max(1, threads)) as pool:
        for number, problem in enumerate(pool.map(lambda file: _check(folder, file, owners), files), start=1):
            if problem:
                problems.append(problem)
            on_progress(number, len(files))
    known = {MANIFEST, *(file.name for file in files)}
    for path in sorted(folder.iterdir()):
        if path.name == PARTS:
            problems.append(Problem(path.name, "unfinished", "left by an interrupted write"))
        elif path.name not in known:
            owner = owners.get(sha256(path)) if path.is_file() else None
            copy = f"a copy of {owner}" if owner else "not in the manifest"
            problems.append(Problem(path.name, "unexpected", copy))
    return problems


def _check(folder: Path, file: File, owners: dict[str, str]) -> Problem | None:
    path = folder / file.name
    try:
        size = path.stat().st_size
        found = sha256(path)
    except FileNotFoundError:
        return Problem(file.name, "missing", "the file does not exist")
    except OSError as error:
        return Problem(file.name, "damaged", f"can't be read: {error.strerror}")
    if found == file.sha256:
        return None
    if found in owners:
        return Problem(file.name, "swapped", f"has the contents of {owners[found]}")
    why = "the checksum does not match" if size == file.bytes else f"has {size:,} bytes, not {file.bytes:,}"
    return Problem(file.name, "damaged", why)
