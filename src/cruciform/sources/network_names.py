"""The names of all networks, known without their libraries: a typo is answered at once, and without torch.

``names.json`` is written by ``benchmarks/list_networks.py``. Of libraries it holds what one version of each lists; it
decides only where that version is installed, and serves for suggestions elsewhere. Of the zoo it holds the families
that it was written with: where there are others, in this package or in plugins, the zoo itself is asked.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from cruciform.errors import UnknownNameError
from cruciform.registry import close_names, did_you_mean, or_list

ZOO = "zoo"
NAMES_FILE = Path(__file__).with_name("names.json")


@cache
def _listed() -> Mapping[str, Any]:
    return json.loads(NAMES_FILE.read_text("utf-8"))  # type: ignore[no-any-return]


def list_sources() -> list[str]:
    """Return the names of all sources."""
    return list(_listed()["names"])


def is_listed(reference: str) -> bool:
    """Return whether a network is known by its source and name; without a source it is of our zoo."""
    source, colon, name = reference.partition(":")
    if colon and source != ZOO:
        return name in _listed()["names"].get(source, ())
    own = name if colon else reference
    return own in _listed()["names"][ZOO] or (_has_other_families() and own in _zoo())


def check_listed(reference: str) -> None:
    """Raise if a source certainly has no network of a name."""
    source, colon, name = reference.partition(":")
    if is_listed(reference):
        return
    if not colon or source == ZOO:
        raise UnknownNameError(unknown_network(name or reference))
    if _listed()["versions"].get(source) == _installed(source):
        raise UnknownNameError(f"{source} has no network {name!r}.{_suggest(name, source)}")


def unknown_network(name: str) -> str:
    """Return the error message for an unknown name."""
    return (
        f"unknown network {name!r}.{_suggest(name)} List networks with 'cruciform models' or cruciform.list_models(), "
        "or name one as timm:NAME, torchvision:NAME, monai:NAME"
    )


def suggest_source(name: str) -> str:
    """Return a suggestion of sources with a similar name, or nothing."""
    return did_you_mean(name, list_sources())


def _suggest(name: str, only: str | None = None) -> str:
    """Return a suggestion of networks with a similar name, as references; of one source or of all."""
    references: dict[str, list[str]] = {}
    listed = {**_listed()["names"], ZOO: _zoo() if _has_other_families() else _listed()["names"][ZOO]}
    for source, names in listed.items():
        for known in names if only in (None, source) else ():
            references.setdefault(known.lower(), []).append(known if source == ZOO else f"{source}:{known}")
    close = [reference for key in close_names(name.lower(), references) for reference in references[key]]
    return f" Did you mean {or_list(close[:3])}?" if close else ""


def families() -> list[str]:
    """Return the files of the zoo, one for each family of networks."""
    return sorted(path.stem for path in (Path(__file__).parents[1] / "models").glob("[!_]*.py"))


def _has_other_families() -> bool:
    """Return whether the zoo has families that are not in the list."""
    return bool(entry_points(group="cruciform.models")) or families() != _listed()["families"]


def _zoo() -> Sequence[str]:
    from cruciform.models.zoo import list_models  # imports torch

    return list_models()


def _installed(library: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(library).partition("+")[0]  # builds for a kind of processor list the same
    except PackageNotFoundError:
        return None
