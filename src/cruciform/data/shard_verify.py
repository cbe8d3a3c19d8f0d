"""Is a set of shards what was written? Every file is read whole; every one that is not is named, and what is wrong."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from cruciform.data.shard_write import PARTS
from cruciform.data.sharding.shard_index import MANIFEST, File, Manifest
from cruciform.errors import DataError
from cruciform.files import read_bytes, sha256


class Problem(NamedTuple):
    """Something that is not as it was written.

    Attributes:
        file: Its name.
        what: ``missing``, ``damaged``, ``exchanged``, ``foreign`` or ``unfinished``.
        why: In words.
    """

    file: str
    what: str
    why: str


def verify_shards(
    folder: Path, *, threads: int = 2, advance: Callable[[int, int], None] = lambda done, of: None
) -> list[Problem]:
    """Returns all that is wrong with a set of shards.

    Args:
        folder: Where it lies.
        threads: How many files are read at once.
        advance: Told how many files of how many were read.
    """
    try:
        text = read_bytes(folder / MANIFEST)
    except OSError as error:
        raise DataError(
            f"{folder} is no whole set of shards: its {MANIFEST} can't be read ({error.strerror})"
        ) from error
    manifest = Manifest.from_json(text, str(folder / MANIFEST))
    files = (*manifest.shards, manifest.index, manifest.names)
    owners = {file.sha256: file.name for file in files}
    problems = []
    with ThreadPoolExecutor(max(1, threads)) as pool:
        for number, problem in enumerate(pool.map(lambda file: _look(folder, file, owners), files), start=1):
            if problem:
                problems.append(problem)
            advance(number, len(files))
    known = {MANIFEST, *(file.name for file in files)}
    for path in sorted(folder.iterdir()):
        if path.name == PARTS:
            problems.append(Problem(path.name, "unfinished", "left over from an interrupted writing"))
        elif path.name not in known:
            owner = owners.get(sha256(path)) if path.is_file() else None
            copy = f"a copy of {owner}" if owner else "not in the manifest"
            problems.append(Problem(path.name, "foreign", copy))
    return problems


def _look(folder: Path, file: File, owners: dict[str, str]) -> Problem | None:
    path = folder / file.name
    try:
        size = path.stat().st_size
        found = sha256(path)
    except FileNotFoundError:
        return Problem(file.name, "missing", "it is not there")
    except OSError as error:
        return Problem(file.name, "damaged", f"can't be read: {error.strerror}")
    if found == file.sha256:
        return None
    if found in owners:
        return Problem(file.name, "exchanged", f"it holds what {owners[found]} should hold")
    why = "its checksum differs" if size == file.bytes else f"it has {size:,} bytes, not {file.bytes:,}"
    return Problem(file.name, "damaged", why)
