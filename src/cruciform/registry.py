"""A registry: items of one kind by name, with suggestions for misspelled names."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules
from types import ModuleType
from typing import Generic, TypeVar

from cruciform.errors import PluginWarning, UnknownNameError, first_line

T = TypeVar("T")


def did_you_mean(given: str, known: Iterable[str], *, most: int = 3) -> str:
    """Return ``" Did you mean 'lr' or 'sf'?"``, or nothing where no known name is close."""
    close = close_names(given, known, most=most)
    return f" Did you mean {or_list(close)}?" if close else ""


def close_names(given: str, known: Iterable[str], *, most: int = 3) -> list[str]:
    """Return the known names that are close to what was given, the closest first."""
    return get_close_matches(given, list(known), n=most, cutoff=0.5)


def or_list(names: Iterable[str]) -> str:
    """Return ``'lr' or 'sf'``."""
    return " or ".join(repr(name) for name in names)


class Registry(Generic[T]):
    """Items of one kind by name, in the order of registration.

    Args:
        kind: What is registered, in the singular, as error messages call it.
        package: Every module of this package is imported on the first look-up; each registers itself. So an addition
            is one file, and no list of files exists.
        group: Entry points of this group are loaded then too, so that other packages can add items. The name of an
            entry point is the name of the item; its object is the item, or a module that registers items itself.
    """

    def __init__(self, kind: str, *, package: str | None = None, group: str | None = None) -> None:
        self._kind = kind
        self._items: dict[str, T] = {}
        self._package, self._group = package, group
        self._is_complete = package is None and group is None

    def add(self, name: str, item: T) -> T:
        """Register one item; a name can be taken once only."""
        if name in self._items:
            raise ValueError(f"the {self._kind} {name!r} is already registered; choose another name")
        self._items[name] = item
        return item

    def register(self, name: str) -> Callable[[T], T]:
        """Register the decorated item under ``name``."""
        return lambda item: self.add(name, item)

    def get(self, name: str, *, besides: Iterable[str] = ()) -> T:
        """Return the item, or raise with the closest names.

        Args:
            name: What it is registered as.
            besides: Words which the caller takes in the place of a name, for the message.
        """
        if isinstance(name, str) and name in self._items:  # before all modules are imported, which takes time
            return self._items[name]
        self._complete()
        if isinstance(name, str) and name in self._items:
            return self._items[name]
        known = [*self._items, *besides]
        raise UnknownNameError(
            f"unknown {self._kind} {name!r}.{did_you_mean(str(name), known)} Known: {', '.join(known)}."
        )

    def names(self) -> list[str]:
        """Return all names in the order of registration."""
        self._complete()
        return list(self._items)

    def registered(self) -> list[str]:
        """Return the names that are registered so far, without importing modules or plugins: for help texts."""
        return list(self._items)

    def items(self) -> Iterator[tuple[str, T]]:
        """Yield (name, item) in the order of registration."""
        self._complete()
        yield from self._items.items()

    def __contains__(self, name: object) -> bool:
        if name not in self._items:
            self._complete()
        return name in self._items

    def _complete(self) -> None:
        """Import modules and plugins once; warn about a plugin that fails, and leave it out."""
        if self._is_complete:
            return
        self._is_complete = True
        if self._package:
            for module in iter_modules(import_module(self._package).__path__):
                import_module(f"{self._package}.{module.name}")
        for entry in entry_points(group=self._group) if self._group else ():
            try:
                item = entry.load()
                if entry.name not in self._items and not isinstance(item, ModuleType):
                    self.add(entry.name, item)
            except Exception as error:  # another package's code: whatever it raises must not end this program
                source = entry.dist.name if entry.dist else entry.value
                warnings.warn(
                    f"{source} adds the {self._kind} {entry.name!r}, which can't be loaded: {first_line(error)}",
                    PluginWarning,
                    stacklevel=4,
                )
