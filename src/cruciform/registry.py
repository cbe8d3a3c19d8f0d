"""A registry: things of one kind, found by name, with a hint when the name is nearly right."""

from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from typing import Generic, TypeVar

from cruciform.errors import UnknownNameError

T = TypeVar("T")


def did_you_mean(given: str, known: Iterable[str], *, most: int = 3) -> str:
    """Returns ``" Did you mean 'lr' or 'sf'?"``, or nothing where no known name is close."""
    close = close_names(given, known, most=most)
    return f" Did you mean {or_list(close)}?" if close else ""


def close_names(given: str, known: Iterable[str], *, most: int = 3) -> list[str]:
    """Returns the known names that are close to what was given, the closest first."""
    return get_close_matches(given, list(known), n=most, cutoff=0.5)


def or_list(names: Iterable[str]) -> str:
    """Returns ``'lr' or 'sf'``."""
    return " or ".join(repr(name) for name in names)


class Registry(Generic[T]):
    """Holds things of one kind by name, in the order in which they were registered.

    Args:
        kind: What is registered, in the singular, as error messages shall call it.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._items: dict[str, T] = {}

    def add(self, name: str, item: T) -> T:
        """Registers one item; a name can be taken once only."""
        if name in self._items:
            raise ValueError(f"the {self._kind} {name!r} is registered already; choose another name")
        self._items[name] = item
        return item

    def register(self, name: str) -> Callable[[T], T]:
        """Registers the decorated item under ``name``."""
        return lambda item: self.add(name, item)

    def get(self, name: str, *, besides: Iterable[str] = ()) -> T:
        """Returns the item, or raises with the closest names.

        Args:
            name: What it is registered as.
            besides: Words which the caller takes in the place of a name, for the message.
        """
        if isinstance(name, str) and name in self._items:
            return self._items[name]
        known = [*self._items, *besides]
        raise UnknownNameError(
            f"unknown {self._kind} {name!r}.{did_you_mean(str(name), known)} Known: {', '.join(known)}."
        )

    def names(self) -> list[str]:
        """Returns all names in the order of registration."""
        return list(self._items)

    def items(self) -> Iterator[tuple[str, T]]:
        """Yields (name, item) in the order of registration."""
        yield from self._items.items()

    def __contains__(self, name: object) -> bool:
        return name in self._items
