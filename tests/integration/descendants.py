"""Finds processes that a test has started, by whom they descend from: for tests that kill some of them."""

from pathlib import Path


def workers(parent: int, mark: bytes) -> list[int]:
    """Returns the descendants of a process whose command line holds a mark."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            status = (path / "stat").read_text().rpartition(")")[2].split()
            children.setdefault(int(status[1]), []).append(int(path.name))
        except OSError:
            continue
    found, todo = [], [parent]
    while todo:
        for child in children.get(todo.pop(), []):
            todo.append(child)
            try:
                if mark in (Path("/proc") / str(child) / "cmdline").read_bytes():
                    found.append(child)
            except OSError:
                continue
    return found
