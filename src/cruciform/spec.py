"""A convolution as data: channels and geometry, of rank 1, 2 or 3. No torch in here.

Symbols, as in the paper: ``c`` input channels, ``d`` filters (output channels), ``k`` the extent of the
window along one axis. An *axis* is a spatial axis, numbered from 0; ``rank`` is how many there are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from math import prod
from operator import ge
from typing import TYPE_CHECKING, Any, Literal, get_args

from cruciform.errors import ShapeError, SpecError

Ints = tuple[int, ...]
Pads = tuple[tuple[int, int], ...]
PaddingMode = Literal["zeros", "reflect", "replicate", "circular"]
CountRule = Literal["mul_add", "paper"]

MAX_RANK = 3
ONLY_TRANSPOSED = frozenset({"transposed", "output_padding"})


def span(kernel: int, dilation: int) -> int:
    """Return the extent of a dilated kernel along one axis."""
    return (kernel - 1) * dilation + 1


@dataclass(frozen=True, slots=True)
class ConvSpec:
    """A convolution: its channels and its geometry.

    Numbers may be given for all axes at once, as torch does; they are kept per axis. Without a tuple to infer
    the rank from, ``kernel=3`` means 2-D.

    Attributes:
        in_channels: ``c``, the channels of the input.
        out_channels: ``d``, the filters.
        kernel: The window's extent along each axis.
        stride: Steps between neighboring outputs.
        padding: Per axis (before, after); also takes one number, one per axis, "same" or "valid".
        dilation: Distance between neighboring taps.
        groups: In how many independent parts the channels are convolved.
        bias: Whether each filter has a bias.
        padding_mode: What the padding is filled with, by torch's names.
        transposed: Whether it is a transposed convolution, which spreads each input over a window of its output. Its
            stride is the distance of neighboring windows there, and its padding is what the output is cropped by.
        output_padding: What a transposed convolution adds at the end of each axis of its output.
    """

    in_channels: int
    out_channels: int
    kernel: Ints
    stride: Ints = (1,)
    padding: Pads = ((0, 0),)
    dilation: Ints = (1,)
    groups: int = 1
    bias: bool = True
    padding_mode: PaddingMode = "zeros"
    transposed: bool = False
    output_padding: Ints = (0,)

    if TYPE_CHECKING:  # what may be given is wider than what is kept

        def __init__(  # noqa: PLR0913
            self,
            in_channels: int,
            out_channels: int,
            kernel: int | Sequence[int],
            stride: int | Sequence[int] = 1,
            padding: int | str | Sequence[int] | Sequence[tuple[int, int]] = 0,
            dilation: int | Sequence[int] = 1,
            groups: int = 1,
            bias: bool = True,  # noqa: FBT001
            padding_mode: PaddingMode = "zeros",
            transposed: bool = False,  # noqa: FBT001
            output_padding: int | Sequence[int] = 0,
        ) -> None: ...

    def __post_init__(self) -> None:
        rank = _rank_of(self.kernel, self.stride, self.dilation, self.padding)
        for name, least in (("kernel", 1), ("stride", 1), ("dilation", 1), ("output_padding", 0)):
            object.__setattr__(self, name, _per_axis(name, getattr(self, name), rank, least))
        object.__setattr__(self, "padding", _paddings(self.padding, self.kernel, self.stride, self.dilation))
        c, d, groups = self.in_channels, self.out_channels, self.groups
        if not (type(c) is int and type(d) is int and type(groups) is int and c > 0 and d > 0 and groups > 0):
            raise SpecError(f"in_channels, out_channels and groups must be positive integers; got {c}, {d}, {groups}")
        if groups > 1 and (c % groups or d % groups):
            raise SpecError(f"groups={groups} must divide the {c} input and the {d} output channels")
        if type(self.bias) is not bool:
            raise SpecError(f"bias must be True or False, not {self.bias!r}")
        if self.padding_mode not in get_args(PaddingMode):
            raise SpecError(f"padding_mode={self.padding_mode!r} is not one of {', '.join(get_args(PaddingMode))}")
        if self.transposed is not False or any(self.output_padding):
            self._check_transposed()

    def _check_transposed(self) -> None:
        if self.transposed is not True:
            raise SpecError(
                f"transposed={self.transposed!r} must be True or False, and True where there is an output_padding; got "
                f"{self.output_padding}"
            )
        if self.padding_mode != "zeros":
            raise SpecError(f"padding_mode={self.padding_mode!r}: a transposed convolution has no other than 'zeros'")
        if any(map(ge, self.output_padding, map(max, self.stride, self.dilation))):
            raise SpecError(
                f"output_padding={self.output_padding} must be smaller than the stride {self.stride} or the dilation "
                f"{self.dilation}"
            )

    @property
    def rank(self) -> int:
        """The number of spatial axes."""
        return len(self.kernel)

    @property
    def span(self) -> Ints:
        """The extent of the dilated kernel along each axis."""
        return tuple(map(span, self.kernel, self.dilation))

    @property
    def params(self) -> int:
        """Weights and biases of the dense convolution."""
        weights = prod(self.kernel) * (self.in_channels // self.groups) * self.out_channels
        return weights + self.out_channels * self.bias

    def output_size(self, input_size: Sequence[int]) -> Ints:
        """Return the spatial size of the output, or raise if the kernel does not fit the input."""
        self.check_rank(input_size)
        if self.transposed:
            return self._transposed_output_size(input_size)
        sizes = []
        for n, reach, step, (before, after) in zip(input_size, self.span, self.stride, self.padding, strict=True):
            room = n + before + after - reach
            if room < 0:
                raise ShapeError(
                    f"an input of {join_sizes(input_size)} is smaller than the kernel, {join_sizes(self.span)}, "
                    f"with padding {self.padding}; it must be at least {join_sizes(self.input_size((1,) * self.rank))}"
                )
            sizes.append(room // step + 1)
        return tuple(sizes)

    def _transposed_output_size(self, input_size: Sequence[int]) -> Ints:
        sizes = tuple((n - 1) * step + last for n, step, last in zip(input_size, self.stride, self._lasts, strict=True))
        if min(sizes) < 1:
            raise ShapeError(
                f"an input of {join_sizes(input_size)} has an output of {join_sizes(sizes)} after padding "
                f"{self.padding} is cropped; it must be at least {join_sizes(self.input_size((1,) * self.rank))}"
            )
        return sizes

    @property
    def _lasts(self) -> Ints:
        """What the last input along each axis of a transposed convolution adds to the output's extent."""
        return tuple(
            reach - before - after + more
            for reach, (before, after), more in zip(self.span, self.padding, self.output_padding, strict=True)
        )

    def input_size(self, output_size: Sequence[int]) -> Ints:
        """Return the smallest spatial size of an input with this output size, or a larger one if transposed."""
        self.check_rank(output_size)
        if self.transposed:
            steps = zip(output_size, self.stride, self._lasts, strict=True)
            return tuple(max(1, 1 - (last - n) // step) for n, step, last in steps)
        return tuple(
            max(1, (n - 1) * step + reach - before - after)
            for n, reach, step, (before, after) in zip(output_size, self.span, self.stride, self.padding, strict=True)
        )

    def macs(self, output_size: Sequence[int], *, count: CountRule = "mul_add") -> int:
        """Return the multiply-accumulates of the dense convolution for an output of this spatial size."""
        self.check_rank(output_size)
        biases = self.out_channels * self.bias
        positions = self.input_size(output_size) if self.transposed else output_size
        return count_macs(self.params - biases, biases, prod(positions), count)

    def to_dict(self) -> dict[str, Any]:
        """Return the spec as plain data, ready for JSON; what only transposed ones have is left out elsewhere."""
        names = (field.name for field in fields(self) if self.transposed or field.name not in ONLY_TRANSPOSED)
        return {name: _listed(getattr(self, name)) for name in names}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ConvSpec":
        """Return the spec that ``to_dict`` described; unknown or missing keys are refused."""
        known = {field.name for field in fields(cls)}
        is_transposed = isinstance(data, Mapping) and not ONLY_TRANSPOSED.isdisjoint(data)
        check_keys(data, known if is_transposed else known - ONLY_TRANSPOSED, "a convolution", SpecError)
        return cls(**data)

    def check_rank(self, size: Sequence[int]) -> None:
        """Raise unless a spatial size has as many axes as the convolution."""
        if len(size) != self.rank:
            raise ShapeError(f"a {self.rank}-D convolution needs {self.rank} spatial sizes; got {join_sizes(size)}")


def count_macs(weights: int, biases: int, positions: int, count: CountRule) -> int:
    """Return the multiply-accumulates of ``weights`` used once at each output position.

    ``mul_add`` counts one for each weight at each position and nothing for biases. ``paper`` adds one for each
    bias, once and not per position: the rule that reproduces every published number of the paper.
    """
    if count == "mul_add":
        return positions * weights
    if count == "paper":
        return positions * weights + biases
    raise SpecError(f"count={count!r} is not one of {', '.join(get_args(CountRule))}")


def join_sizes(sizes: Sequence[int]) -> str:
    """Return sizes as people write them: ``3×1``."""
    return "×".join(str(size) for size in sizes)


def check_keys(data: object, known: set[str], what: str, error: type[ValueError]) -> None:
    """Raise unless ``data`` is a mapping with exactly the known keys."""
    if not isinstance(data, Mapping):
        raise error(f"{what} must be a mapping, not {type(data).__name__}")
    unknown, missing = sorted(map(str, set(data) - known)), sorted(known - set(data))
    if unknown or missing:
        raise error(f"{what} needs exactly the keys {sorted(known)}; unknown: {unknown}, missing: {missing}")


def _rank_of(*values: object) -> int:
    for value in values:
        if isinstance(value, (tuple, list)) and len(value) > 1:
            rank = len(value)
            break
    else:
        # Nothing names more than one axis: a tuple of one is 1-D, a bare number is the usual 2-D.
        rank = 1 if isinstance(values[0], (tuple, list)) else 2
    if rank > MAX_RANK:
        raise SpecError(f"convolutions of rank 1 to {MAX_RANK} are supported; {values[0]!r} has rank {rank}")
    return rank


def _per_axis(name: str, value: object, rank: int, least: int) -> Ints:
    if type(value) is int:
        numbers: tuple[Any, ...] = (value,) * rank
    elif isinstance(value, (tuple, list)) and len(value) in (1, rank):
        numbers = tuple(value) if len(value) == rank else tuple(value) * rank
    else:
        raise SpecError(f"{name}={value!r} must be one integer, or {rank}: one per axis")
    for number in numbers:
        if type(number) is not int or number < least:
            raise SpecError(f"{name}={value!r} must be {'positive integers' if least else 'integers of at least 0'}")
    return numbers


def _paddings(value: object, kernel: Ints, stride: Ints, dilation: Ints) -> Pads:
    if isinstance(value, str):
        if value == "valid":
            return ((0, 0),) * len(kernel)
        if value != "same":
            raise SpecError(f"padding={value!r} must be a number, a pair per axis, 'same' or 'valid'")
        if any(step != 1 for step in stride):
            raise SpecError(f"padding='same' needs stride 1, as in torch; stride is {stride}")
        totals = [span(k, step) - 1 for k, step in zip(kernel, dilation, strict=True)]
        return tuple((total // 2, total - total // 2) for total in totals)
    entries = [value] if type(value) is int else value
    if not isinstance(entries, (tuple, list)) or len(entries) not in (1, len(kernel)):
        raise SpecError(f"padding={value!r} must be one number or {len(kernel)} numbers or (before, after) pairs")
    pads = tuple((entry, entry) if type(entry) is int else tuple(entry) for entry in entries)
    for pair in pads:
        if len(pair) != 2 or any(type(number) is not int or number < 0 for number in pair):
            raise SpecError(f"padding={value!r} must be integers of at least 0, or (before, after) pairs of them")
    return pads if len(pads) == len(kernel) else pads * len(kernel)


def _listed(value: object) -> object:
    return [_listed(item) for item in value] if isinstance(value, tuple) else value
