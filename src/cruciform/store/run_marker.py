"""Recognize the directory of a run, without what is needed to read it."""

from pathlib import Path

RUN_RECIPE = "recipe.json"
"""The recipe of a run, in its directory."""


def is_run(directory: Path) -> bool:
    """Return whether a directory is that of a run."""
    return (directory / RUN_RECIPE).is_file()
