"""Plans: a layer is data before it is a module. A plan is stages in sequence, each a set of filter groups.

Symbols, as in the paper: ``c`` input channels, ``d`` filters of a group, ``h w`` the extents of a filter.

**The embedding law** fixes the geometry of every filter group: its output equals that of a dense convolution
whose kernel is the small one, embedded at the center of the layer's window, all else zero. So a group inherits
the stride and dilation of the layer, and its padding is the layer's less what the embedding leaves out.

**The ownership rule** splits the geometry over stages: an axis belongs to the first stage that has a filter
longer than one tap along it, or to the first stage where none has. The owner strides, pads and dilates along
the axis; all other stages must have one tap there. A plan without an inner non-linearity is therefore always
equal to one dense convolution (but for biases inside: see ``LayerPlan.border_biases``).

**Transposed convolutions** follow both: a window is then where one input is spread to in the output, and padding what
is cropped there. A group with fewer taps along an axis than the stride would leave outputs that no input reaches, where
the dense convolution has none: such plans are refused. Chains of 1-D filters (``sf``) have no such holes.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from cruciform.errors import PlanError
from cruciform.spec import ConvSpec, CountRule, Ints, Pads, check_keys, count_macs, join_sizes, span

PLAN_FORMAT = 1


@dataclass(frozen=True, slots=True)
class FilterGroup:
    """Filters of one shape.

    Attributes:
        kernel: The extent of each filter along each axis.
        filters: How many there are.
        dilation: Distance between taps, in taps of the layer's window; 1 along each axis where left out.
    """

    kernel: Ints
    filters: int
    dilation: Ints = ()

    def __post_init__(self) -> None:
        if not self.dilation:
            object.__setattr__(self, "dilation", (1,) * len(self.kernel))
        numbers = (*self.kernel, *self.dilation, self.filters)
        if len(self.dilation) != len(self.kernel) or set(map(type, numbers)) != {int} or min(numbers) < 1:
            raise PlanError(
                f"a filter group needs positive integers, one per axis; got kernel={self.kernel!r}, "
                f"dilation={self.dilation!r}, filters={self.filters!r}"
            )

    def __str__(self) -> str:
        spread = "" if max(self.dilation) == 1 else f"@{join_sizes(self.dilation)}"
        return f"{join_sizes(self.kernel)}{spread}: {self.filters}"


@dataclass(frozen=True, slots=True)
class Stage:
    """Filter groups side by side: all read the same input, their outputs are concatenated.

    Attributes:
        groups: The filter groups, in the order of their output channels.
        bias: Whether each filter has a bias.
        activation: The non-linearity inside the layer after this stage, by name. None after the last stage,
            where it belongs to the network and not to the layer.
        filters: The output channels of the stage.
        taps: Σ hᵢ·wᵢ·dᵢ over the groups, which is n̂ of the paper.
        extents: The longest filter of the stage along each axis.
    """

    groups: tuple[FilterGroup, ...]
    bias: bool = True
    activation: str | None = None
    # Worked out once, since a planner asks thousands of plans a second.
    filters: int = field(init=False, repr=False, compare=False)
    taps: int = field(init=False, repr=False, compare=False)
    extents: Ints = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.groups:
            raise PlanError("a stage needs at least one filter group")
        filters = taps = 0
        extents = self.groups[0].kernel
        for group in self.groups:
            filters += group.filters
            taps += prod(group.kernel) * group.filters
            if group.kernel != extents:
                if len(group.kernel) != len(extents):
                    raise PlanError(f"the groups of the stage {self} have different ranks")
                extents = tuple(map(max, extents, group.kernel))
        object.__setattr__(self, "filters", filters)
        object.__setattr__(self, "taps", taps)
        object.__setattr__(self, "extents", extents)

    def __str__(self) -> str:
        after = f" {self.activation}" if self.activation else ""
        return f"[{' ‖ '.join(map(str, self.groups))}]{after}"


@dataclass(frozen=True, slots=True)
class LayerPlan:
    """How a convolution is computed: the stages that replace it.

    Attributes:
        spec: The convolution that the plan replaces: its channels and geometry bind the plan.
        stages: What is computed instead, in sequence.
        owners: For each axis the stage that strides, pads and dilates along it.
    """

    spec: ConvSpec
    stages: tuple[Stage, ...]
    owners: Ints = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        spec, stages = self.spec, self.stages
        if not stages:
            raise PlanError("a plan needs at least one stage")
        owners = [0] * spec.rank
        for index, stage in enumerate(stages):
            if len(stage.extents) != spec.rank:
                raise PlanError(
                    f"the stage {stage} has rank {len(stage.extents)}, but the convolution has rank {spec.rank}"
                )
            if index:
                self._claim(owners, index)
        object.__setattr__(self, "owners", tuple(owners))
        if stages[-1].filters != spec.out_channels:
            raise PlanError(f"the last stage has {stages[-1].filters} filters; the layer needs {spec.out_channels}")
        if stages[-1].activation is not None:
            raise PlanError(
                "the last stage has an activation; leave it out: the activation after a layer is a module of its own"
            )
        if spec.groups > 1 and (len(stages) > 1 or len(stages[0].groups) > 1):
            raise PlanError(
                f"a convolution with groups={spec.groups} can only be one stage of one filter group: "
                "concatenating several groups would reorder its channels"
            )
        if spec.transposed:
            self._refuse_holes()

    def _refuse_holes(self) -> None:
        """Raise if outputs of a transposed plan are reached by no input, though the dense convolution reaches them."""
        for index, stage in enumerate(self.stages):
            window = self.stage_spec(index)
            whole = FilterGroup(window.kernel, stage.filters)
            for group in stage.groups:
                for axis in range(window.rank):
                    missing = len(phases(window, whole, axis) - phases(window, group, axis))
                    if missing:
                        step = window.stride[axis]
                        raise PlanError(
                            "a transposed convolution, in whose output these filters would leave holes "
                            f"([{group}]: {missing} of {step} positions along axis {axis}); filters in sequence leave "
                            "none: write the scheme as 'lr or sf'"
                        )

    def _claim(self, owners: list[int], index: int) -> None:
        """Assign to a later stage the axes along which it filters, by the ownership rule."""
        for axis, extent in enumerate(self.stages[index].extents):
            if extent > 1:
                if self.stages[owners[axis]].extents[axis] > 1:
                    raise PlanError(
                        f"stages {owners[axis]} and {index} of {self} have kernels longer than 1 along axis {axis}; "
                        "only one stage may"
                    )
                owners[axis] = index

    # Arithmetic. A stage is named by its index.

    def in_channels(self, stage: int) -> int:
        """Return ``c``, the channels that the stage reads."""
        return self.stages[stage - 1].filters if stage else self.spec.in_channels

    def weights(self, stage: int) -> int:
        """Return the number of weights of the stage, without biases."""
        return self.stages[stage].taps * (self.in_channels(stage) // self.spec.groups)

    def fan_out(self, stage: int) -> float:
        """Return n̂ = Σ hᵢ·wᵢ·dᵢ, the outputs that one input of the stage reaches (the paper's appendix)."""
        return self.stages[stage].taps / self.spec.groups

    def activations(self, after: str | None) -> tuple[str | None, ...]:
        """Return the non-linearity that follows each stage, given the one ``after`` the layer."""
        return (*(stage.activation for stage in self.stages[:-1]), after)

    @property
    def params(self) -> int:
        """Weights and biases of all stages."""
        return sum(self.weights(index) + stage.filters * stage.bias for index, stage in enumerate(self.stages))

    def macs(self, output_size: Sequence[int], *, count: CountRule = "mul_add") -> int:
        """Return the multiply-accumulates for an output of this spatial size.

        Where a later stage strides, the size of what it reads is not settled by the layer's output alone; the
        smallest is taken. ``macs_from_input`` knows it exactly.
        """
        self.spec.check_rank(output_size)
        # Where the first stage owns all axes, every stage works at the size of the output.
        owned_later = any(self.owners) or self.spec.transposed
        input_size = self.spec.input_size(output_size) if owned_later else output_size
        return self._macs(input_size, output_size, count)

    def macs_from_input(self, input_size: Sequence[int], *, count: CountRule = "mul_add") -> int:
        """Return the multiply-accumulates for an input of this spatial size."""
        return self._macs(input_size, self.spec.output_size(input_size), count)

    def group_macs(self, input_size: Sequence[int], *, count: CountRule = "mul_add") -> tuple[tuple[int, ...], ...]:
        """Return the multiply-accumulates of each group of each stage for an input of this spatial size."""
        output_size = self.spec.output_size(input_size)
        return tuple(
            tuple(
                count_macs(
                    prod(group.kernel) * (self.in_channels(index) // self.spec.groups) * group.filters,
                    group.filters * stage.bias,
                    self._positions(index, input_size, output_size),
                    count,
                )
                for group in stage.groups
            )
            for index, stage in enumerate(self.stages)
        )

    def _macs(self, input_size: Sequence[int], output_size: Sequence[int], count: CountRule) -> int:
        return sum(
            count_macs(
                self.weights(index),
                stage.filters * stage.bias,
                self._positions(index, input_size, output_size),
                count,
            )
            for index, stage in enumerate(self.stages)
        )

    def _positions(self, stage: int, input_size: Sequence[int], output_size: Sequence[int]) -> int:
        # Along an axis that a later stage owns, this stage still sees the size of the layer's input. A transposed
        # stage does its work once for each of its inputs, any other for each of its outputs.
        last = stage - self.spec.transposed
        return prod(
            after if owner <= last else before
            for before, after, owner in zip(input_size, output_size, self.owners, strict=True)
        )

    # Geometry.

    def stage_spec(self, stage: int) -> ConvSpec:
        """Return the dense convolution in whose window the filters of the stage are embedded."""
        spec, owned = self.spec, [owner == stage for owner in self.owners]

        def here(values: Sequence[Any], elsewhere: object) -> tuple[Any, ...]:
            return tuple(v if mine else elsewhere for v, mine in zip(values, owned, strict=True))

        return ConvSpec(
            self.in_channels(stage),
            self.stages[stage].filters,
            kernel=here(spec.kernel, 1),
            stride=here(spec.stride, 1),
            padding=here(spec.padding, (0, 0)),
            dilation=here(spec.dilation, 1),
            groups=spec.groups,
            bias=self.stages[stage].bias,
            padding_mode=spec.padding_mode,
            transposed=spec.transposed,
            output_padding=here(spec.output_padding, 0),
        )

    @property
    def is_dense(self) -> bool:
        """Whether the plan is the dense convolution itself."""
        return len(self.stages) == 1 and self.stages[0].groups == (
            FilterGroup(self.spec.kernel, self.spec.out_channels),
        )

    @property
    def obstacle(self) -> str | None:
        """Why the plan has no exactly equivalent single kernel, or None where it has one."""
        for index, stage in enumerate(self.stages[:-1]):
            if stage.activation:
                return f"there is a non-linearity ({stage.activation}) after stage {index}"
        return None

    @property
    def border_biases(self) -> Ints:
        """The stages whose biases are cut off at the border, because a later stage pads with zeros.

        Only where these biases are all zero is the plan equal to one dense convolution at the border too. Those of
        transposed convolutions are also added up differently from one output to the next, where windows overlap.
        """
        if self.spec.padding_mode != "zeros":
            return ()
        touches = self._filters if self.spec.transposed else self._pads
        last = max((index for index in range(len(self.stages)) if touches(index)), default=0)
        return tuple(index for index, stage in enumerate(self.stages) if index < last and stage.bias)

    def _filters(self, stage: int) -> bool:
        """Return whether a stage does more than a pointwise convolution."""
        spec = self.stage_spec(stage)
        return max(*self.stages[stage].extents, *spec.stride) > 1 or any(map(any, (*spec.padding, spec.output_padding)))

    def _pads(self, stage: int) -> bool:
        """Return whether a group of the stage reads beyond its input: by the layer's padding, or out of its window."""
        groups = (group_padding(self.stage_spec(stage), group) for group in self.stages[stage].groups)
        return any(pad > 0 for pads in groups for pair in pads for pad in pair)

    # As text and as plain data.

    def __str__(self) -> str:
        return " → ".join(map(str, self.stages))

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain data, ready for JSON."""
        return {
            "format": PLAN_FORMAT,
            "spec": self.spec.to_dict(),
            "stages": [
                {
                    "groups": [
                        {"kernel": list(g.kernel), "filters": g.filters, "dilation": list(g.dilation)}
                        for g in stage.groups
                    ],
                    "bias": stage.bias,
                    "activation": stage.activation,
                }
                for stage in self.stages
            ],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "LayerPlan":
        """Return the plan that ``to_dict`` described; raise on unknown, missing or ill-typed parts."""
        check_keys(data, {"format", "spec", "stages"}, "a plan", PlanError)
        if data["format"] != PLAN_FORMAT:
            raise PlanError(f"plan format {data['format']!r} is not supported; this version reads format {PLAN_FORMAT}")
        return cls(ConvSpec.from_dict(data["spec"]), tuple(map(_read_stage, _items(data["stages"], "stages"))))

    def to_json(self) -> str:
        """Return the plan as one line of JSON."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> "LayerPlan":
        """Return the plan that ``to_json`` wrote."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise PlanError(f"a plan must be valid JSON: {error}") from error
        return cls.from_dict(data)


def embedding_offset(window: int, kernel: int, dilation: int) -> int:
    """Return where a kernel starts when it is embedded at the center of a window, in taps of the window.

    Rounds down where the difference is odd. Below 0 where the kernel reaches out of the window.
    """
    return (window - span(kernel, dilation)) // 2


def group_padding(spec: ConvSpec, group: FilterGroup) -> Pads:
    """Return the padding of one group by the embedding law; a number below 0 means that input is cut off."""
    pads = []
    for axis, (before, after) in enumerate(spec.padding):
        window, tap = spec.kernel[axis], spec.dilation[axis]
        offset = embedding_offset(window, group.kernel[axis], group.dilation[axis])
        rest = window - span(group.kernel[axis], group.dilation[axis]) - offset
        pads.append((before - offset * tap, after - rest * tap))
    return tuple(pads)


def phases(spec: ConvSpec, group: FilterGroup, axis: int) -> set[int]:
    """Return at which positions within a step of the stride a group of a stage has taps along an axis."""
    first = embedding_offset(spec.kernel[axis], group.kernel[axis], group.dilation[axis])
    taps = (first + tap * group.dilation[axis] for tap in range(group.kernel[axis]))
    return {tap * spec.dilation[axis] % spec.stride[axis] for tap in taps}


def _read_stage(data: Mapping[str, Any]) -> Stage:
    check_keys(data, {"groups", "bias", "activation"}, "a stage", PlanError)
    bias, activation = data["bias"], data["activation"]
    if type(bias) is not bool or not (activation is None or isinstance(activation, str)):
        raise PlanError(f"a stage needs bias true or false and activation null or a name, not {bias!r}, {activation!r}")
    return Stage(tuple(map(_read_group, _items(data["groups"], "groups"))), bias, activation)


def _read_group(data: Mapping[str, Any]) -> FilterGroup:
    check_keys(data, {"kernel", "filters", "dilation"}, "a filter group", PlanError)
    kernel, dilation = (tuple(_items(data[key], key)) for key in ("kernel", "dilation"))
    return FilterGroup(kernel, data["filters"], dilation)


def _items(value: object, what: str) -> Iterable[Any]:
    if not isinstance(value, (list, tuple)):
        raise PlanError(f"{what} must be a list, not {value!r}")
    return value
