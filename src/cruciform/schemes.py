"""Schemes: functions from a convolution to the plan that replaces it. A new scheme is one function here.

======================  ==========================================================  =====================
name                    plan for a k×k layer of d filters                           paper
======================  ==========================================================  =====================
``full``                ``[k×k: d]``                                                fig. 2a
``sf``                  ``[1×k: d] → [k×1: d]``                                     fig. 2b, gmp-sf
``lr``                  ``[k×1: d/2 ‖ 1×k: d/2]``                                   gmp-lr
``lr-join``             ``[k×1: d/2 ‖ 1×k: d/2] → [1×1: d]``                        fig. 2c, gmp-lr-join
``lr-join-wfull``       ``[k×1: 3d/8 ‖ 1×k: 3d/8 ‖ k×k: d/4] → [1×1: d]``           fig. 2d
======================  ==========================================================  =====================

and for volumes, of a k×k×k layer:

======================  ==========================================================
``cross3``              ``[k×1×1: d/3 ‖ 1×k×1: d/3 ‖ 1×1×k: d/3]``, which is ``lr``
``planes``              ``[1×k×k: d/3 ‖ k×1×k: d/3 ‖ k×k×1: d/3]``
``axial``               ``[k×k×1: d] → [1×1×k: d]``
======================  ==========================================================

``cross`` is the family that these are members of, with any width, fraction of full k×k filters, join, shapes and
blocks; in 3-D it has 1-D filters along three axes. Biases follow the convolution's, in every stage, as in the paper's
networks. Members without a name of their own are written with their options, wherever a scheme's name is asked for:
``cross:full=0.25``, ``cross:width=0.5,join``, ``cross:shapes=kx1+1xk+2x2``, ``cross:shapes=planes,full=0.25``,
``cross:block=16``.

``sf:rank=64`` and ``thin:rank=64`` approximate trained kernels, ``[1×k: 64] → [k×1: d]`` and ``[k×k: 64] → [1×1: d]``;
only their last stage has a bias. ``sf:rank=50%`` has half as many filters as the layer has outputs, in whole blocks of
8.

``cross3 or sf`` is the first of several that applies to a layer: ``sf`` for transposed convolutions with a stride, in
whose outputs ``cross3`` would leave holes.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

from cruciform.errors import PlanError, SpecError
from cruciform.plan import FilterGroup, LayerPlan, Stage
from cruciform.registry import Registry
from cruciform.spec import MAX_RANK, ConvSpec, Ints

Scheme: TypeAlias = Callable[[ConvSpec], LayerPlan]
Made = TypeVar("Made")

SCHEMES: Registry[Scheme] = Registry("scheme", group="cruciform.schemes")
PLANE_SHAPES = "planes"
DENSE = "full"
"""The scheme that changes nothing."""
RANK_BLOCK = 8
"""Ranks that are fractions are rounded to so many filters, which engines compute at once."""
OR = " or "
"""Between schemes of which the first counts that applies to a layer."""
WITHOUT_PLAN = ("grouped", "separable", "bottleneck")
"""What only networks are built with: ``models/efficient_layers.py``."""


@SCHEMES.register(DENSE)
def full(spec: ConvSpec) -> LayerPlan:
    """The dense convolution itself."""
    return LayerPlan(spec, (Stage((FilterGroup(spec.kernel, spec.out_channels),), spec.bias),))


@SCHEMES.register("sf")
def separable(spec: ConvSpec) -> LayerPlan:
    """1-D filters in sequence, the last axis first: ``[1×k: d] → [k×1: d]`` in 2-D."""
    _refuse_groups(spec, "sf")
    axes = [axis for axis in reversed(range(spec.rank)) if spec.kernel[axis] > 1] or [0]
    lines = [_line(spec.kernel, axis) for axis in axes]
    return LayerPlan(spec, tuple(Stage((FilterGroup(line, spec.out_channels),), spec.bias) for line in lines))


def separable_of_rank(*, rank: int | float) -> Scheme:
    """Return a scheme of 1-D filters in sequence with few channels between them: ``[1×k: rank] → [k×1: d]`` in 2-D.

    Args:
        rank: Filters of every stage but the last; a float is a fraction of the layer's output channels.
    """
    _refuse_rank("sf", rank)

    def scheme(spec: ConvSpec) -> LayerPlan:
        stages = separable(spec).stages
        if len(stages) == 1:
            raise PlanError(f"sf:rank={rank} needs a kernel that is longer than 1 along two axes; {spec} is not")
        few = _filters_of(rank, spec)
        inner = [Stage((FilterGroup(stage.groups[0].kernel, few),), bias=False) for stage in stages[:-1]]
        return LayerPlan(spec, (*inner, stages[-1]))

    return scheme


def thin(*, rank: int | float) -> Scheme:
    """Return a scheme of few full filters with a join after them: ``[k×k: rank] → [1×1: d]``.

    Args:
        rank: How many full filters; a float is a fraction of the layer's output channels.
    """
    _refuse_rank("thin", rank)

    def scheme(spec: ConvSpec) -> LayerPlan:
        _refuse_groups(spec, "thin")
        few = Stage((FilterGroup(spec.kernel, _filters_of(rank, spec)),), bias=False)
        return LayerPlan(spec, (few, Stage((FilterGroup((1,) * spec.rank, spec.out_channels),), spec.bias)))

    return scheme


def _refuse_rank(scheme: str, rank: int | float) -> None:
    if not (0 < rank < float("inf") if isinstance(rank, float) else rank >= 1):
        raise PlanError(f"the rank of {scheme} must be at least 1, or a percentage above 0%; got {rank}")


def _filters_of(rank: int | float, spec: ConvSpec) -> int:
    """Return a rank as a number of filters; fractions give whole blocks, where there is one."""
    if isinstance(rank, int):
        return rank
    wanted = rank * spec.out_channels
    return max(1, round(wanted / RANK_BLOCK) * RANK_BLOCK or round(wanted))


def _read_rank(text: str) -> int | float:
    return float(text[:-1]) / 100 if text.endswith("%") else int(text)


def cross(
    *,
    width: float = 1.0,
    full: float = 0.0,
    join: bool | str = False,
    shapes: Sequence[str] | None = None,
    block: int = 1,
) -> Scheme:
    """Return a scheme of filter groups of several shapes, with an optional join after them.

    Args:
        width: Basis filters as a multiple of the layer's output channels; needs a join unless 1.
        full: The fraction of the basis filters that are full k×k filters.
        join: Whether a linear 1×1 convolution combines the basis filters; or its shape, as ``"kx1"``.
        shapes: The shapes of the other basis filters, in equal shares: ``"kx1"``, ``"1x5"``, ``"2x2"``, with
            ``k`` for the layer's own kernel size and ``@2`` appended for a dilation of 2; or ``"planes"`` alone: across
            each axis of the window, ``1xkxk`` and its kin in 3-D. Left out: a line along each axis of the window,
            ``kx1`` and ``1xk`` in 2-D.
        block: Shapes get whole blocks of so many filters, where a layer has a block for each: engines compute 8 or
            16 filters at a time, and as long for a part of them.
    """
    if not (0 < width < float("inf") and 0 <= full <= 1):
        raise PlanError(f"width must be positive and full in [0, 1]; got {width=}, {full=}")
    if width != 1 and not join:
        raise PlanError(f"width={width} needs join=True: without a join the basis filters are the layer's outputs")
    if shapes is not None and not shapes:
        raise PlanError("shapes=() leaves no basis filters; omit shapes for 1-D filters along every axis")
    if block < 1:
        raise PlanError(f"block must be at least 1; got {block}")
    chosen = None if shapes is None else tuple(shapes)
    join_shape = "1" if join is True else join
    written = [*(() if chosen == (PLANE_SHAPES,) else chosen or ()), *([join] if isinstance(join, str) else ())]
    if written:
        _refuse_slips(written)

    def scheme(spec: ConvSpec) -> LayerPlan:
        _refuse_groups(spec, "cross")
        basis = max(1, round(spec.out_channels * width))
        groups = _share_out(basis, full, spec.kernel, _shapes(chosen, spec.kernel), block)
        stages = [Stage(groups, spec.bias)]
        if join_shape:
            kernel, dilation = _shape(join_shape, spec.kernel)
            stages.append(Stage((FilterGroup(kernel, spec.out_channels, dilation),), spec.bias))
        return LayerPlan(spec, tuple(stages))

    return scheme


_LR = SCHEMES.add("lr", cross())  # one definition for every rank: k×1 and 1×k in 2-D, three axes in 3-D
SCHEMES.add("lr-join", cross(join=True))
SCHEMES.add("lr-join-wfull", cross(full=0.25, join=True))
SCHEMES.add("cross3", _LR)  # an alias, as papers on volumes call it
SCHEMES.add("planes", cross(shapes=[PLANE_SHAPES]))

CROSS_MEMBERS = (
    "cross:full=0.125", "cross:full=0.25", "cross:full=0.5", "cross:width=0.5,join", "cross:width=0.75,join",
    "cross:width=0.5,full=0.25,join", "cross:full=0.5,join",
)  # fmt: skip
"""Members of ``cross`` without a name of their own that searches over schemes try, besides all that have one."""


@SCHEMES.register("axial")
def axial(spec: ConvSpec) -> LayerPlan:
    """All axes but the last together, then the last: ``[k×k×1: d] → [1×1×k: d]`` in 3-D."""
    _refuse_groups(spec, "axial")
    last = max((axis for axis in range(spec.rank) if spec.kernel[axis] > 1), default=0)
    line = _line(spec.kernel, last)
    rest = tuple(1 if axis == last else extent for axis, extent in enumerate(spec.kernel))
    windows = [window for window in (rest, line) if max(window) > 1] or [line]
    return LayerPlan(spec, tuple(Stage((FilterGroup(window, spec.out_channels),), spec.bias) for window in windows))


def make_plan(spec: ConvSpec, scheme: str | Scheme = "lr") -> LayerPlan:
    """Return the plan of a scheme, given by its name or as a function, for a convolution."""
    return (find_scheme(scheme) if isinstance(scheme, str) else scheme)(spec)


_Readers: TypeAlias = dict[str, Callable[[str], Any]]
_RANK: _Readers = {"rank": _read_rank}
FAMILIES: dict[str, tuple[Callable[..., Scheme], _Readers, str]] = {
    "cross": (
        cross,
        {"width": float, "full": float, "block": int, "join": lambda value: value or True,
         "shapes": lambda value: value.split("+")},
        "width=0.5, full=0.25, block=16, join, join=kx1 or shapes=kx1+1xk, separated by commas: 'cross:full=0.25,join'",
    ),
    "sf": (separable_of_rank, _RANK, "'sf:rank=64' or 'sf:rank=50%'"),
    "thin": (thin, _RANK, "'thin:rank=64' or 'thin:rank=50%'"),
}  # fmt: skip
"""By name: the function that returns a member, how its options are read, and how they are written."""


@lru_cache
def find_scheme(text: str) -> Scheme:
    """Return the scheme of a name, a member of a family as ``cross:full=0.25,join``, or the first that applies."""
    if OR in text:
        return first_that_applies(tuple(map(find_scheme, text.split(OR))))
    family, colon, options = text.partition(":")
    if family in WITHOUT_PLAN:
        raise PlanError(
            f"{text!r} has norms and activations inside, so it has no plan, and no convolution can be converted to it. "
            "Build the network with it: create_model('cifar_fast', schemes=...), create_model('vgg11_gmp', scheme=...) "
            "or, for networks of other libraries, the option convolutions=..."
        )
    if not colon or family not in FAMILIES:
        return SCHEMES.get(text)
    make, readers, written = FAMILIES[family]
    chosen = {}
    for option in options.split(","):
        key, _, value = option.partition("=")
        try:
            chosen[key] = readers[key](value)
        except (KeyError, ValueError):
            raise PlanError(
                f"the scheme {text!r} has an unknown or invalid option {option!r}; write {written}"
            ) from None
    return make(**chosen)


def first_that_applies(functions: Sequence[Callable[[ConvSpec], Made]]) -> Callable[[ConvSpec], Made]:
    """Return a function that tries several on a convolution until one does not raise a ``PlanError``."""

    def make(spec: ConvSpec) -> Made:
        for each in functions[:-1]:
            with suppress(PlanError):
                return each(spec)
        return functions[-1](spec)

    return make


def _refuse_groups(spec: ConvSpec, scheme: str) -> None:
    if spec.groups > 1:
        raise PlanError(
            f"the scheme {scheme} needs groups=1, not groups={spec.groups}: a grouped or depthwise convolution is "
            "sparse already. Keep it with the scheme 'full'"
        )


def _share_out(
    basis: int, full: float, window: Ints, shapes: Sequence[tuple[Ints, Ints]], block: int
) -> tuple[FilterGroup, ...]:
    """Split the basis filters: the full filters first, the rest evenly, the remainder to the first shapes.

    Identical shapes, such as the 1-D filter and the full kernel in 1-D, become one group.
    """
    if round(basis * full / block) * block > basis - block * len(shapes):
        block = 1  # too few for a block of each
    whole = round(basis * full / block) * block
    blocks, rest = divmod(basis - whole, block)
    each, over = divmod(blocks, len(shapes))
    counts: dict[tuple[Ints, Ints], int] = {}
    for index, shape in enumerate(shapes):
        counts[shape] = counts.get(shape, 0) + (each + (index < over)) * block + (rest if index == 0 else 0)
    if whole:
        square = (window, (1,) * len(window))
        counts[square] = counts.get(square, 0) + whole
    return tuple(FilterGroup(kernel, count, dilation) for (kernel, dilation), count in counts.items() if count)


def _refuse_slips(shapes: Sequence[str]) -> None:
    """Raise if no kernel of any rank can have these shapes: that is a typo, not a property of a layer."""
    for rank in range(1, MAX_RANK + 1):
        try:
            for text in shapes:
                kernel, dilation = _shape(text, (1,) * rank)
                FilterGroup(kernel, 1, dilation)
            return
        except (PlanError, SpecError) as error:
            problem = error
    raise PlanError(f"no kernel of rank 1 to {MAX_RANK} can have {' and '.join(shapes)}: {problem}")


@lru_cache(maxsize=4096)
def _shapes(chosen: tuple[str, ...] | None, window: Ints) -> tuple[tuple[Ints, Ints], ...]:
    axes = [axis for axis, extent in enumerate(window) if extent > 1] or [0]
    ones = (1,) * len(window)
    if chosen == (PLANE_SHAPES,):
        across = [tuple(1 if other == axis else extent for other, extent in enumerate(window)) for axis in axes]
        return tuple((plane, ones) for plane in across)
    if chosen is not None:
        return tuple(_shape(text, window) for text in chosen)
    return tuple((_line(window, axis), ones) for axis in axes)


@lru_cache(maxsize=4096)
def _shape(text: str, window: Ints) -> tuple[Ints, Ints]:
    """Read a shape such as ``kx1``, ``1x5`` or ``3x3@2``: (kernel, dilation). One number stands for all axes."""
    extents, _, spread = text.lower().replace("×", "x").partition("@")
    try:
        kernel = _numbers(extents, window)
        dilation = _numbers(spread, window) if spread else (1,) * len(window)
    except ValueError:
        raise PlanError(
            f"the shape {text!r} does not fit a kernel of rank {len(window)}; write one size per axis, 'k' for the "
            "layer's own kernel size, then '@2' for a dilation: 'kx1', '1x5', '3x3@2'"
        ) from None
    return kernel, dilation


def _numbers(text: str, window: Ints) -> Ints:
    parts = text.split("x")
    parts = parts * len(window) if len(parts) == 1 else parts
    return tuple(k if part == "k" else int(part) for part, k in zip(parts, window, strict=True))


def _line(window: Ints, axis: int) -> Ints:
    return tuple(extent if index == axis else 1 for index, extent in enumerate(window))
