"""The one module that runs any plan of any rank; there are no subclasses per scheme or dimension."""

from collections.abc import Callable
from typing import Final, NoReturn, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cruciform.errors import ShapeError
from cruciform.nn.activations import ACTIVATIONS
from cruciform.nn.forms import DenseKernel, collapse_kernel
from cruciform.nn.init_rules import initialize_layer_
from cruciform.nn.padding import pad_or_crop
from cruciform.nn.strided_convolutions import strided_conv2d, strided_conv3d
from cruciform.nn.symbolic import leaf_call, refuse_script
from cruciform.nn.transposed_convolutions import TransposedGroupConv
from cruciform.plan import FilterGroup, LayerPlan, group_padding
from cruciform.spec import ConvSpec, Ints, Pads

FUNCTIONAL_CONVOLUTIONS: Final[dict[int, Callable[..., Tensor]]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
STRIDED_CONVOLUTIONS: Final[dict[int, Callable[..., Tensor]]] = {1: F.conv1d, 2: strided_conv2d, 3: strided_conv3d}


class CompositeConv(nn.Module):
    """A convolution computed by a plan: a drop-in replacement for ``nn.Conv2d``, ``nn.ConvTranspose2d`` and their kin.

    Group ``g`` of stage ``s`` has the parameters ``weight_s_g`` and, where the stage has biases, ``bias_s_g``.
    Initialized by the paper's completed rule for a ReLU after the layer; see ``cruciform.initialize_``.

    Args:
        plan: What to compute.
        device: Device of the parameters.
        dtype: Data type of the parameters.
        generator: The source of the initial weights; torch's default one where left out.
    """

    def __init__(
        self,
        plan: LayerPlan,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.plan = plan
        self._smallest = plan.spec.input_size((1,) * plan.spec.rank)
        # For each stage the names of the (weight, bias) of each group; a bias may be None.
        self.parameter_names: list[list[tuple[str, str]]] = [
            [(f"weight_{index}_{n}", f"bias_{index}_{n}") for n in range(len(stage.groups))]
            for index, stage in enumerate(plan.stages)
        ]
        self._stages: list[list[GroupConv]] = []
        self._activations: list[Callable[[Tensor], Tensor] | None] = []
        for index, stage in enumerate(plan.stages):
            spec, c = plan.stage_spec(index), plan.in_channels(index) // plan.spec.groups
            for (weight_name, bias_name), group in zip(self.parameter_names[index], stage.groups, strict=True):
                weight = torch.empty(group.filters, c, *group.kernel, device=device, dtype=dtype)
                bias = torch.empty(group.filters, device=device, dtype=dtype) if stage.bias else None
                self.register_parameter(weight_name, nn.Parameter(weight))
                self.register_parameter(bias_name, None if bias is None else nn.Parameter(bias))
            self._stages.append([_group_conv(spec, group) for group in stage.groups])
            self._activations.append(ACTIVATIONS.get(stage.activation).apply if stage.activation else None)
        initialize_layer_(self.plan, self.stage_parameters(), generator=generator)

    @property
    def in_channels(self) -> int:
        """The channels of the input."""
        return self.plan.spec.in_channels

    @property
    def out_channels(self) -> int:
        """The channels of the output."""
        return self.plan.spec.out_channels

    # What networks ask of a convolution besides running it, by the names of torch's modules.

    @property
    def kernel_size(self) -> Ints:
        """The kernel size along each axis."""
        return self.plan.spec.kernel

    @property
    def stride(self) -> Ints:
        """The stride along each axis."""
        return self.plan.spec.stride

    @property
    def padding(self) -> tuple[int, ...] | Pads:
        """The padding along each axis; (before, after) pairs where it is unequal."""
        pads = self.plan.spec.padding
        return tuple(before for before, _ in pads) if all(a == b for a, b in pads) else pads

    @property
    def dilation(self) -> Ints:
        """The dilation along each axis."""
        return self.plan.spec.dilation

    @property
    def groups(self) -> int:
        """In how many independent parts the channels are convolved."""
        return self.plan.spec.groups

    @property
    def padding_mode(self) -> str:
        """What the padding is filled with."""
        return self.plan.spec.padding_mode

    def stage_parameters(self) -> list[list[tuple[Tensor, Tensor | None]]]:
        """Return for each stage the (weight, bias) of each group."""
        return [[(getattr(self, w), getattr(self, b)) for w, b in stage] for stage in self.parameter_names]

    # The name is torch's own: networks that call ``conv(input=x)`` still run when their layers are exchanged.
    def forward(self, input: Tensor, tail: Callable[[Tensor], Tensor] | None = None) -> Tensor:  # noqa: A002
        """Run the stages in sequence, and the groups of each side by side.

        Args:
            input: What the first stage reads.
            tail: Done to the output of each last group before they are concatenated. For what looks at every channel by
                itself, a pooling for instance, it is the same as after, with less to concatenate.
        """
        traced: Tensor | None = leaf_call(self, input)
        if traced is not None:
            return traced if tail is None else tail(traced)
        x, rank = input, self.plan.spec.rank
        if x.ndim not in (rank + 1, rank + 2) or x.shape[-rank - 1] != self.in_channels:
            raise ShapeError(
                f"this layer takes inputs of (batch, {self.in_channels}, {rank} spatial sizes), not "
                f"{tuple(x.shape)}; its plan is {self.plan}"
            )
        if any(n < least for n, least in zip(x.shape[-rank:], self._smallest, strict=True)):
            # A small group might still find its few taps, where the window that it stands in does not fit.
            self.plan.spec.output_size(x.shape[-rank:])
        for convolutions, parameters, activation in zip(
            self._stages, self.stage_parameters(), self._activations, strict=True
        ):
            parts = [conv(x, *pair) for conv, pair in zip(convolutions, parameters, strict=True)]
            if tail is not None and convolutions is self._stages[-1]:
                parts = [tail(part) for part in parts]
            x = parts[0] if len(parts) == 1 else torch.cat(parts, dim=-rank - 1)
            if activation is not None:
                x = activation(x)
        return x

    def __prepare_scriptable__(self) -> NoReturn:  # torch.jit.script asks for it first
        refuse_script(self)

    def dense_kernel(self) -> DenseKernel:
        """Return the single kernel that is exactly equivalent to the layer, or raise ``NotLinearError``."""
        return collapse_kernel(self.plan, self.stage_parameters())

    def extra_repr(self) -> str:
        """Show the plan, and what of the geometry is not the default."""
        spec = self.plan.spec
        notes = [f"stride={spec.stride}"] if max(spec.stride) > 1 else []
        notes += [f"dilation={spec.dilation}"] if max(spec.dilation) > 1 else []
        notes += [f"padding={spec.padding}"] if any(map(any, spec.padding)) else []
        return ", ".join([f"{spec.in_channels}, {self.plan}", *notes])


GroupConv: TypeAlias = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""One filter group as a call, of an input, its weight and its bias."""


def _group_conv(spec: ConvSpec, group: FilterGroup) -> GroupConv:
    """Return torch's convolution with the padding of the embedding law."""
    pads = group_padding(spec, group)
    native = spec.padding_mode == "zeros" and all(before == after >= 0 for before, after in pads)
    padding = tuple(before for before, _ in pads) if native else (0,) * spec.rank
    dilation = tuple(a * b for a, b in zip(spec.dilation, group.dilation, strict=True))
    if spec.transposed:
        return TransposedGroupConv(spec, padding, dilation, None if native else pads)
    return _PlainGroupConv(spec, padding, dilation, None if native else pads)


class _PlainGroupConv:
    def __init__(self, spec: ConvSpec, padding: Ints, dilation: Ints, pads: Pads | None) -> None:
        self.convolve = (STRIDED_CONVOLUTIONS if max(spec.stride) > 1 else FUNCTIONAL_CONVOLUTIONS)[spec.rank]
        self.geometry = spec.stride, padding, dilation, spec.groups
        self.pads = pads
        self.mode = "constant" if spec.padding_mode == "zeros" else spec.padding_mode

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if self.pads is not None:
            x = pad_or_crop(x, self.pads, self.mode)
        return self.convolve(x, weight, bias, *self.geometry)
