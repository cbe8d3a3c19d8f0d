"""Rules: which convolutions to convert. Predicates on a layer, combined with ``&``, ``|`` and ``~``.

where=channels(64) & ~first() & named("layer*")
"""

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from cruciform.errors import ConversionError
from cruciform.spec import ConvSpec


@dataclass(frozen=True)
class ConvLayer:
    """A convolution as predicates see it.

    Attributes:
        names: Its dotted names: more than one where it is shared.
        spec: What it computes.
        index: Its number among the network's convolutions, from 0, in the order of the network.
        count: How many convolutions there are.
        share: Its fraction of the network's multiply-accumulates; None where no input size was given.
    """

    names: tuple[str, ...]
    spec: ConvSpec
    index: int
    count: int
    share: float | None


class Where:
    """A predicate on a convolution, with a description."""

    def __init__(self, test: Callable[[ConvLayer], bool], text: str) -> None:
        self._test = test
        self.text = text

    def __call__(self, layer: ConvLayer) -> bool:
        """Return whether the layer matches."""
        return self._test(layer)

    def __and__(self, other: "Where") -> "Where":
        return Where(lambda layer: self(layer) and other(layer), f"{self.text} and {other.text}")

    def __or__(self, other: "Where") -> "Where":
        return Where(lambda layer: self(layer) or other(layer), f"({self.text} or {other.text})")

    def __invert__(self) -> "Where":
        return Where(lambda layer: not self(layer), f"not {self.text}")


def everywhere() -> Where:
    """All convolutions."""
    return Where(lambda layer: True, "everywhere")


def named(*patterns: str) -> Where:
    """Convolutions one of whose names matches a pattern such as ``layer*.conv1``."""
    return Where(lambda layer: matches(layer.names, patterns), f"name matches {' or '.join(patterns)}")


def kernel(at_least: int) -> Where:
    """Convolutions with a kernel of at least this size along two axes."""
    return Where(lambda layer: sorted(layer.spec.kernel)[-2:][0] >= at_least, f"a kernel of at least {at_least}")


def channels(at_least: int) -> Where:
    """Convolutions with at least this many input and output channels."""
    return Where(
        lambda layer: min(layer.spec.in_channels, layer.spec.out_channels) >= at_least, f"at least {at_least} channels"
    )


def first() -> Where:
    """The first convolution of the network."""
    return Where(lambda layer: layer.index == 0, "the first convolution")


def last() -> Where:
    """The last convolution of the network."""
    return Where(lambda layer: layer.index == layer.count - 1, "the last convolution")


def share(at_least: float) -> Where:
    """Convolutions with at least this fraction of the network's multiply-accumulates, from 0 to 1."""

    def test(layer: ConvLayer) -> bool:
        if layer.share is None:
            raise ConversionError("where.share needs input_size=, for instance (3, 224, 224)")
        return layer.share >= at_least

    return Where(test, f"at least {at_least:.1%} of the MACs")


def matches(names: tuple[str, ...], patterns: tuple[str, ...]) -> bool:
    """Return whether any of the names matches any of the patterns."""
    # A name may hold square brackets, which are no pattern where it is written out.
    return any(name == pattern or fnmatchcase(name, pattern) for name in names for pattern in patterns)
