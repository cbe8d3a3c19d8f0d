"""Optimizers on trial: steps that orthogonalize kernels (Muon), and weight decay of what several stages make together.

They are registered where this is imported, and recipes of ``free_accuracy.py`` take them by ``optimizer.kind``.

Muon (Jordan 2024; airbench94_muon), for a kernel W of d filters and the momentum m of its gradient g:

    m ← μ m + g,   W ← W √d / ‖W‖,   W ← W − γ orthogonalized(g + μ m)

where W is taken as a matrix, (d, rest). Every filter group has a kernel of its own. Everything else is trained by SGD.
"""

from collections.abc import Callable, Iterator
from math import sqrt
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from cruciform.nn.composite import CompositeConv
from cruciform.training.optimizers.optimizer_table import OPTIMIZERS, DecayRate
from cruciform.training.optimizers.sgd import Sgd

QUINTIC = 3.4445, -4.7750, 2.0315
"""The coefficients of an odd polynomial that moves singular values towards 1 quickly, and leaves them near it."""
ORTHOGONAL = "orthogonal"


@OPTIMIZERS.register("muon")
class Muon(Sgd):
    """Muon for kernels, SGD for everything else.

    Attributes:
        kernel_lr: The learning rate of kernels, in place of ``lr``.
        kernel_momentum: Their momentum.
        newton_steps: Steps of the iteration that orthogonalizes.
    """

    kind: Literal["muon"] = "muon"
    kernel_lr: float = Field(default=0.24, gt=0)
    kernel_momentum: DecayRate = 0.6
    newton_steps: int = Field(default=3, ge=1)

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return the optimizer; kernels, which have more than two axes, are in groups of their own."""
        groups: list[dict[str, Any]] = []
        for group in self._groups(model):
            kernels = [parameter for parameter in group["params"] if parameter.ndim > 2]
            others = [parameter for parameter in group["params"] if parameter.ndim <= 2]
            lr = group["lr_mult"] * self.kernel_lr
            rates = {"lr": lr, "lr_mult": lr / self.lr, "momentum": self.kernel_momentum}
            orthogonal = {**rates, "weight_decay": 0.0, ORTHOGONAL: True}
            groups += [{**group, "params": kernels, **orthogonal}] if kernels else []
            groups += [{**group, "params": others}] if others else []
        return self.make(groups)

    def make(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        """Return the optimizer of these parameter groups."""
        return MuonOptimizer(groups, self.momentum, nesterov=self.nesterov, newton_steps=self.newton_steps)


class MuonOptimizer(torch.optim.Optimizer):
    """SGD whose steps of some groups, the kernels, are orthogonal.

    Args:
        groups: Those with ``orthogonal=True`` are kernels.
        momentum: Of the others.
        nesterov: Whether the others have Nesterov momentum; kernels always do.
        newton_steps: As for ``orthogonalized``.
    """

    def __init__(self, groups: list[dict[str, Any]], momentum: float, *, nesterov: bool, newton_steps: int) -> None:
        self._newton_steps = newton_steps
        super().__init__(groups, {"momentum": momentum, "nesterov": nesterov, ORTHOGONAL: False})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:
        """Take a step with every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._step_(parameter, parameter.grad, group)

    def _step_(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        if group["weight_decay"]:
            gradient = gradient.add(parameter, alpha=group["weight_decay"])
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        moving = state["momentum_buffer"].mul_(group["momentum"]).add_(gradient)
        if group["nesterov"] or group[ORTHOGONAL]:
            moving = gradient.add(moving, alpha=group["momentum"])
        if group[ORTHOGONAL]:
            parameter.mul_(sqrt(len(parameter)) / parameter.norm().clamp_min(1e-12))
            moving = orthogonalized(moving.flatten(1), steps=self._newton_steps).reshape(parameter.shape)
        parameter.add_(moving, alpha=-group["lr"])


def orthogonalized(matrix: Tensor, *, steps: int) -> Tensor:
    """Return a matrix with the singular vectors of another and singular values near 1, by a Newton–Schulz iteration."""
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / x.norm().clamp_min(1e-12)
    a, b, c = QUINTIC
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if tall else x


@OPTIMIZERS.register("sgd-product-decay")
class ProductDecay(Sgd):
    """SGD that decays what several stages make together, ½ λ ‖K₂ ∘ K₁‖², in place of the kernel of each stage."""

    kind: Literal["sgd-product-decay"] = "sgd-product-decay"

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return the optimizer; it adds the gradient of the decay before each step."""
        chains = chains_of(model)
        groups = list(self._without_decay(model, {id(weight) for chain in chains for weight in kernels_of(chain)}))
        optimizer = self.make(groups)

        def decay(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
            for chain in chains:
                add_product_decay_(chain, self.weight_decay)

        optimizer.register_step_pre_hook(decay)
        return optimizer

    def _without_decay(self, model: nn.Module, left_out: set[int]) -> Iterator[dict[str, Any]]:
        for group in self._groups(model):
            for inside in (True, False):
                some = [parameter for parameter in group["params"] if (id(parameter) in left_out) == inside]
                decay = 0.0 if inside else group["weight_decay"]
                if some:
                    yield {**group, "params": some, "weight_decay": decay}


def chains_of(model: nn.Module) -> list[CompositeConv]:
    """Return the layers that have several stages with nothing non-linear between them."""
    layers = [module for module in model.modules() if isinstance(module, CompositeConv)]
    return [layer for layer in layers if len(layer.plan.stages) > 1 and not layer.plan.obstacle]


def kernels_of(layer: CompositeConv) -> list[Tensor]:
    """Return the kernels of all stages and groups of a layer."""
    return [weight for stage in layer.stage_parameters() for weight, _ in stage]


def add_product_decay_(layer: CompositeConv, decay: float) -> None:
    """Add the gradient of ½ λ ‖V‖², where V is the dense kernel that a layer equals, to those of its kernels."""
    kernels = [(kernel, kernel.grad) for kernel in kernels_of(layer) if kernel.grad is not None]
    if not kernels or not decay:
        return
    with torch.enable_grad():
        whole = layer.dense_kernel().weight
        added = torch.autograd.grad(decay / 2 * whole.square().sum(), [kernel for kernel, _ in kernels])
    for (_, gradient), more in zip(kernels, added, strict=True):
        gradient.add_(more)
