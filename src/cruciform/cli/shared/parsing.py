"""Parse and check what is typed: input sizes, names of files to write."""

from collections.abc import Callable
from pathlib import Path

from cruciform.errors import OptionError


def read_size(text: str) -> tuple[int, ...]:
    """Read ``3x224x224``."""
    parts = text.lower().replace("×", "x").split("x")
    if not 2 <= len(parts) <= 4 or not all(part.isdecimal() and int(part) for part in parts):
        raise OptionError(f"{text!r} is not an input size; write channels and spatial size, as 3x224x224 or 1x64x64x64")
    return tuple(map(int, parts))


def optional_size(text: str | None) -> tuple[int, ...] | None:
    """Parse an input size, if one was typed."""
    return None if text is None else read_size(text)


def picture(path: Path | None) -> Path | None:
    """Refuse a plot that can't be written, before the work for it."""
    if path is not None:
        from cruciform.plot.style import check_picture

        check_picture(path)
    return path


def ending(suffix: str) -> Callable[[Path | None], Path | None]:
    """Return a callback that refuses files with another ending."""

    def check(path: Path | None) -> Path | None:
        if path is not None and path.is_dir():
            raise OptionError(f"{path} is a directory; give a file, for instance {path / f'x{suffix}'}")
        if path is not None and path.suffix.lower() != suffix:
            raise OptionError(f"{path} would be written as {suffix}; name it {path.with_suffix(suffix)}")
        return path

    return check


def read_limit(text: str) -> tuple[str, str]:
    """Read ``macs=50%`` as a cost unit and its limit; without a unit it is a time."""
    unit, equals, limit = text.rpartition("=")
    return (unit, limit) if equals else ("time", text)
