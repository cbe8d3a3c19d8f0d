"""Find other references to a module or its weights, which replacing the module would not reach."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import suppress
from functools import partial
from types import FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any
from weakref import ProxyTypes, ref

from torch import Tensor, nn, strided

MODULE_DICTS = frozenset({"_modules", "_parameters", "_buffers"})
Span = tuple[tuple[str, int], int, int]


class Targets:
    """Modules to be replaced, recognized by identity and by the memory of their parameters.

    Args:
        modules: The modules by their names.
    """

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        self._owners: dict[int, str] = {}
        self._labels: dict[int, str] = {}
        self._spans: dict[tuple[str, int], list[tuple[int, int, str]]] = {}
        for name, module in modules.items():
            self._owners[id(module)], self._labels[id(module)] = name, name
            for key, parameter in module.named_parameters():
                self._owners.setdefault(id(parameter), name)
                self._labels.setdefault(id(parameter), f"{name}.{key}" if name else key)
                span = _span(parameter)
                if span:
                    self._spans.setdefault(span[0], []).append((span[1], span[2], name))

    def label(self, item: nn.Module | Tensor) -> str | None:
        """Return what an item is called: ``conv``, or ``conv.weight`` where it is a parameter; None for views."""
        return self._labels.get(id(item))

    def owners(self, item: nn.Module | Tensor) -> list[str]:
        """Return the targets that are this item, or that own its memory or a part of it."""
        found = [self._owners[id(item)]] if id(item) in self._owners else []
        span = _span(item) if isinstance(item, Tensor) else None
        if span:
            memory, start, end = span
            found += [name for first, last, name in self._spans.get(memory, ()) if first < end and start < last]
        return found


def hidden_references(root: nn.Module, targets: Mapping[str, nn.Module]) -> Iterator[tuple[str, str, str]]:
    """Yield (name of the module, what of it, where) for references that surgery does not reach.

    A plain list of layers or of weights, for instance, or a layer's method: the network would keep using the old ones.
    """
    wanted, known = Targets(targets), {id(module) for module in root.modules()}
    seen: dict[int, Any] = {}
    for place, value in _attributes(root):
        for item in _held(value, known, seen):
            for target in wanted.owners(item):
                yield target, wanted.label(item) or f"a view of the weights of {target}", place


def shared_memory(root: nn.Module, targets: Mapping[str, nn.Module]) -> Iterator[tuple[str, str]]:
    """Yield (name, name) of a target and of another module with a parameter or buffer in the same memory."""
    wanted = Targets(targets)
    for name, module in root.named_modules():
        for tensor in (*module._parameters.values(), *module._buffers.values()):
            owners = wanted.owners(tensor) if tensor is not None else []
            yield from ((owner, name) for owner in owners if owner != name)


def _attributes(root: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield (place, value) of all that modules and their classes hold besides modules, parameters and buffers."""
    kinds: set[type] = set()
    for name, owner in root.named_modules():
        own = ((key, value) for key, value in vars(owner).items() if key not in MODULE_DICTS)
        yield from ((f"{name}.{key}" if name else key, value) for key, value in (*own, *_slots(owner)))
        kinds.update(type(owner).__mro__)
    for kind in kinds:
        if kind.__module__.partition(".")[0] not in ("torch", "builtins"):  # the defaults of a method, for instance
            yield from ((f"{kind.__qualname__}.{key}", value) for key, value in vars(kind).items())


def _held(value: Any, known: Set[int], seen: dict[int, Any]) -> Iterator[nn.Module | Tensor]:
    """Yield the modules and tensors in containers and objects, however deep, and those that functions hold on to.

    Args:
        value: Where to begin.
        known: The identities of the modules that surgery reaches, and that are not looked into.
        seen: What was looked into, kept alive so that no identity is used twice.
    """
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if type(item) in ProxyTypes:
            item = item.__repr__.__self__  # what a weak proxy stands for
        if isinstance(item, nn.Module | Tensor):
            yield item
        if id(item) not in seen and id(item) not in known:
            seen[id(item)] = item
            waiting.extend(_content(item))


def _content(value: Any) -> Iterable[Any]:
    if isinstance(value, Tensor | type | ModuleType | str | bytes):
        return
    if isinstance(value, ref):
        yield value()
    elif isinstance(value, MethodType):
        yield from (value.__self__, value.__func__)
    elif isinstance(value, staticmethod | classmethod):
        yield value.__func__
    elif isinstance(value, property):
        yield from (value.fget, value.fset, value.fdel)
    elif isinstance(value, partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, FunctionType):
        yield from (value.__defaults__ or ())
        yield from (value.__kwdefaults__ or {}).values()
        for cell in value.__closure__ or ():
            with suppress(ValueError):  # a cell that nothing was put into yet
                yield cell.cell_contents
    elif isinstance(value, Mapping):
        yield from (*value.keys(), *value.values())
    elif isinstance(value, list | tuple | Set | deque):
        yield from value
    own = getattr(value, "__dict__", None)
    yield from own.values() if isinstance(own, dict) else ()
    yield from (content for _, content in _slots(value))


def _slots(value: Any) -> Iterator[tuple[str, Any]]:
    for kind in type(value).__mro__:
        if "__slots__" in vars(kind):
            for name, slot in vars(kind).items():
                if isinstance(slot, MemberDescriptorType):
                    with suppress(AttributeError):  # nothing was put into it yet
                        yield name, slot.__get__(value)


def _span(tensor: Tensor) -> Span | None:
    """Return the memory that a tensor is in, and from which byte to which; None where it has none of its own."""
    if tensor.layout is not strided or not tensor.numel():
        return None
    with suppress(RuntimeError, NotImplementedError):  # tensors of other libraries may have none to show
        memory = tensor.untyped_storage().data_ptr()
        last = sum((extent - 1) * step for extent, step in zip(tensor.shape, tensor.stride(), strict=True))
        start, size = int(tensor.storage_offset()), tensor.element_size()
        # On the meta device all memory begins at 0.
        return ((str(tensor.device), memory), start * size, (start + last + 1) * size) if memory else None
    return None
