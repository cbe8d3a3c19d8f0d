"""Layers on trial: kernels that are sums and products while they are trained, and one kernel when they are deployed.

Every filter group of f filters and c channels has, in training, the kernel

    K = s₀ ⊙ W  +  s₁ ⊙ (A · W′ · B)  +  s₂ ⊙ P

of W and W′ of the group's own size, A (f × f) and B (c × c) over channels, P (f × c) at the center tap, and a scale of
each for every filter (OREPA, Hu et al. 2022). K is computed before the convolution, so that a step takes hardly longer,
and the trained network is exactly one of ordinary layers: ``merged_``. The zoo gets ``cifar_fast_reparam``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from cruciform.models.cifar_fast import CifarFast, CifarFastConfig
from cruciform.models.network import MODELS
from cruciform.nn.composite import CompositeConv
from cruciform.nn.init_rules import initialize_layer_
from cruciform.nn.inspect import plan_of
from cruciform.plan import LayerPlan

NAME = "cifar_fast_reparam"
SCALES = 1.0, 0.5, 0.5
"""Of the three terms, at the start."""
RULE = "pytorch"


class SummedConv(CompositeConv):
    """A layer whose kernels are sums and products of parameters."""

    def __init__(self, plan: LayerPlan) -> None:
        self._is_summed = False
        super().__init__(plan)
        others = [[torch.empty_like(weight) for weight, _ in stage] for stage in self.stage_parameters()]
        initialize_layer_(plan, [[(weight, None) for weight in stage] for stage in others], rule=RULE)
        for names, stage in zip(self.parameter_names, others, strict=True):
            for (name, _), weight in zip(names, stage, strict=True):
                f, c = weight.shape[:2]
                parts = {
                    "product": weight,
                    "after": torch.eye(f),
                    "before": torch.eye(c),
                    "point": torch.empty(f, c).uniform_(-1, 1) / c**0.5,
                }
                for part, value in parts.items():
                    self.register_parameter(f"{part}_{name}", nn.Parameter(value.detach().clone()))
                for number, scale in enumerate(SCALES):
                    self.register_parameter(f"scale_{number}_{name}", nn.Parameter(torch.full((f,), scale)))
                self.register_buffer(f"summed_{name}", torch.zeros_like(weight), persistent=False)

    def train(self, mode: bool = True) -> Self:  # noqa: FBT001
        """Set the mode. Kernels are computed on the way to evaluation, in which the layer is an ordinary one."""
        super().train(mode)
        if not mode:
            with torch.no_grad():
                for names, stage in zip(self.parameter_names, self.summed(), strict=True):
                    for (name, _), (kernel, _) in zip(names, stage, strict=True):
                        self.get_buffer(f"summed_{name}").copy_(kernel)
        return self

    def forward(self, input: Tensor, tail: Callable[[Tensor], Tensor] | None = None) -> Tensor:  # noqa: A002
        """Run the layer with the kernels that its parameters come to."""
        self._is_summed = True
        try:
            return super().forward(input, tail)
        finally:
            self._is_summed = False

    def stage_parameters(self) -> list[list[tuple[Tensor, Tensor | None]]]:
        """Return (W, bias) for each group of each stage, which initialization sets; in a forward pass (K, bias)."""
        if not self._is_summed:
            return super().stage_parameters()
        if self.training:
            return self.summed()
        return [[(getattr(self, f"summed_{w}"), getattr(self, b)) for w, b in names] for names in self.parameter_names]

    def summed(self) -> list[list[tuple[Tensor, Tensor | None]]]:
        """Return (K, bias) for each group of each stage."""
        return [[(self._kernel(w), getattr(self, b)) for w, b in names] for names in self.parameter_names]

    def _kernel(self, name: str) -> Tensor:
        parts = ("product", "after", "before", "point")
        weight, product, after, before, point = (getattr(self, key) for key in (name, *(f"{p}_{name}" for p in parts)))
        f, c, *taps = weight.shape
        # (f, c, taps): A over the filters, B over the channels.
        inner = (after @ product.flatten(1)).reshape(f, c, -1).movedim(1, -1) @ before
        outer = torch.zeros_like(weight)
        outer[(slice(None), slice(None), *(size // 2 for size in taps))] = point
        terms = weight, inner.movedim(-1, 1).reshape(weight.shape), outer
        return sum(
            (self._scale(number, name, weight.ndim) * term for number, term in enumerate(terms)), torch.zeros(())
        )

    def _scale(self, number: int, name: str, axes: int) -> Tensor:
        scale: Tensor = getattr(self, f"scale_{number}_{name}")
        return scale.reshape(-1, *[1] * (axes - 1))


@torch.no_grad()
def merged_(network: nn.Module) -> nn.Module:
    """Put an ordinary layer with the same kernels in the place of every summed one."""
    for name, layer in list(network.named_modules()):
        if isinstance(layer, SummedConv):
            plain = CompositeConv(layer.plan)
            for own, summed in zip(plain.stage_parameters(), layer.summed(), strict=True):
                for (weight, bias), (kernel, its_bias) in zip(own, summed, strict=True):
                    weight.copy_(kernel)
                    if bias is not None and its_bias is not None:
                        bias.copy_(its_bias)
            network.set_submodule(name, plain)
    return network


@dataclass(frozen=True, kw_only=True)
class SummedConfig(CifarFastConfig):
    """The family ``cifar_fast`` with summed kernels in its blocks."""

    def build(self) -> CifarFast:
        """Build the network."""
        network = super().build()
        for block in network.blocks:
            convs: Any = block.convs
            for number, conv in enumerate(convs):
                plan = plan_of(conv)
                if plan is None:
                    raise TypeError(f"{type(conv).__name__} has no plan, so its kernels can't be sums")
                convs[number] = SummedConv(plan)
        return network


MODELS.add(NAME, SummedConfig())
