"""Limit the size of a network that a file describes by the weights that come with it, before and while it is built.

A library's constructor is foreign code, and a few bytes of options can make it run for hours or take all memory. What
it may build is known before: a network has about as many tensors, and as many numbers in them, as its weights.
"""

import math
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as registration
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from cruciform.errors import OptionError
from cruciform.measure.dry_run import META

LARGEST_OPTION = 1 << 13
"""The largest number among options, but for those that are a number of classes."""
CLASS_OPTIONS = ("num_classes", "out_channels")
LONGEST_OPTION = 1000  # characters of a text among options
# Constructors register more than what remains: layers that are replaced, empty ones, weights under several names; and
# a dense base has several times the weights of what it is converted to.
REGISTERED_FACTOR = 4
MODULE_FACTOR = 16
TIMES = 64
OPERATIONS = 50


@dataclass(frozen=True)
class Bounds:
    """Limits of a network that is being built.

    Attributes:
        tensors: How many tensors its weights are.
        elements: How many numbers they hold.
        filters: How many filters, or single values, they are along their first axes.
        extents: The extents of all of them.
    """

    tensors: int
    elements: int
    filters: int
    extents: frozenset[int]

    @classmethod
    def of(cls, shapes: Iterable[Sequence[int]]) -> "Bounds":
        """Return the bounds that weights of these shapes set."""
        held = [tuple(shape) for shape in shapes if math.prod(shape)]  # extents of nothing cost nothing to claim
        extents = frozenset(extent for shape in held for extent in shape)
        filters = sum(min(shape[0], LARGEST_OPTION) for shape in held if shape)
        return cls(len(held), sum(math.prod(shape) for shape in held), filters, extents)

    @property
    def most_modules(self) -> int:
        """The limit of registered modules."""
        return MODULE_FACTOR * self.tensors + 1024

    @property
    def most_parameters(self) -> int:
        """The limit of registered parameters."""
        return REGISTERED_FACTOR * self.tensors + 256

    @property
    def most_operations(self) -> int:
        """How many operations on tensors may be called; some rules of initialization set filter by filter."""
        return OPERATIONS * (self.tensors + self.filters) + 5_000

    @property
    def most_elements(self) -> int:
        """How many numbers all parameters may hold, and any one tensor that is computed on the way."""
        return TIMES * self.elements + (1 << 20)

    def check_options(self, options: Mapping[str, Any], what: str) -> None:
        """Raise if options hold a number, a text or a list that no network with these weights was built with."""
        items = 0

        def walk(value: Any, option: str) -> None:
            nonlocal items
            items += 1
            if items > self.most_modules:
                raise OptionError(f"{what}: its options have more than {self.most_modules:,} values")
            if isinstance(value, Mapping):
                for key, inner in value.items():
                    walk(key, option)
                    walk(inner, option)
            elif isinstance(value, list | tuple):
                for inner in value:
                    walk(inner, option)
            elif isinstance(value, str):
                if len(value) > LONGEST_OPTION:
                    raise OptionError(f"{what}: option {option!r} is a text of {len(value):,} characters")
                for digits in re.findall(r"(?<![.\d])\d+", value):  # some libraries read numbers out of texts
                    self._check_number(int(digits), option, what)
            elif isinstance(value, int | float):
                self._check_number(value, option, what)

        for option, value in options.items():
            walk(option, option[:50])
            walk(value, option)

    def _check_number(self, value: float, option: str, what: str) -> None:
        classes = option in CLASS_OPTIONS and value in self.extents
        if not classes and not abs(value) <= LARGEST_OPTION:  # what is not a number is not small either
            text = str(value)
            shown = text if len(text) < 25 else f"a number of {len(text):,} digits"
            raise OptionError(
                f"{what}: option {option!r} is {shown}; at most {LARGEST_OPTION:,} is allowed, or a number of classes "
                "that the weights have"
            )


@contextmanager
def bounded(bounds: Bounds, what: str) -> Iterator[None]:
    """Raise within the block as soon as this thread builds more than weights of these bounds could fill.

    Args:
        bounds: Of the weights.
        what: What asks for it, for the message.
    """
    here = threading.get_ident()
    counts: Counter[str] = Counter()
    most = {
        "modules": bounds.most_modules,
        "parameters": bounds.most_parameters,
        "parameter values": bounds.most_elements,
        "operations": bounds.most_operations,
    }

    def count(kind: str, number: int = 1) -> None:
        if threading.get_ident() != here:  # hooks hear of all threads
            return
        counts[kind] += number
        if counts[kind] > most[kind]:
            raise _too_large(f"{most[kind]:,} {kind}", bounds, what)

    def count_parameter(module: nn.Module, name: str, parameter: Tensor) -> None:
        count("parameters")
        count("parameter values", parameter.numel())

    def measure(size: int) -> None:
        count("operations")
        if size > bounds.most_elements:
            raise _too_large(f"{bounds.most_elements:,} values in one tensor", bounds, what)

    handles = [
        registration.register_module_module_registration_hook(lambda *_: count("modules")),
        registration.register_module_parameter_registration_hook(count_parameter),
    ]
    try:
        with _Measured(measure):
            yield
    finally:
        for handle in handles:
            handle.remove()


def _too_large(asked: str, bounds: Bounds, what: str) -> OptionError:
    return OptionError(
        f"{what} asks for a network of more than {asked}, and its weights are {bounds.tensors:,} tensors of "
        f"{bounds.elements:,} values; it is damaged or forged"
    )


class _Measured(TorchDispatchMode):
    """Check the size of each result on the meta device before memory is allocated for it."""

    def __init__(self, measure: Callable[[int], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._measure = measure

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and to ask dynamo imports it, which takes seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not _makes_tensors(func):
            self._measure(0)
            return func(*args, **kwargs)
        tensors = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, Tensor)]
        if not any(tensor.is_meta for tensor in tensors) and kwargs.get("device") != META:
            self._measure(_size(_on_meta(func, args, kwargs, is_factory=not tensors)))
            return func(*args, **kwargs)
        result = func(*args, **kwargs)
        self._measure(_size(result))
        return result


@cache
def _makes_tensors(func: Any) -> bool:
    """Return whether an operation makes tensors, and not only numbers or views of what is there."""
    if func is torch.ops.aten.scalar_tensor.default:  # one number, and there are many of them
        return False
    schema = func._schema
    results = [result for result in schema.returns if "Tensor" in str(result.type)]
    return bool(results) and not schema.is_mutable and not any(result.alias_info for result in results)


def _on_meta(func: Any, args: Any, kwargs: Any, *, is_factory: bool) -> Any:
    def move(value: Any) -> Any:
        if isinstance(value, Tensor):
            return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=META)
        return META if isinstance(value, torch.device) else value

    if is_factory and any(argument.name == "device" for argument in func._schema.arguments):
        kwargs = {**kwargs, "device": META}
    try:
        return func(*tree_map(move, args), **tree_map(move, kwargs))
    except Exception:  # what has no such form looks at numbers, and takes no more than it looks at
        return None


def _size(result: Any) -> int:
    return max((value.numel() for value in tree_flatten(result)[0] if isinstance(value, Tensor)), default=0)
