"""The filters of a network: basis filters, their equivalent kernels, and the energy of every filter group.

Symbols: ``d`` filters of a layer, ``c`` channels that each reads. The *kernel* of a layer is the dense one, (d, c,
window), that its plan is equal to; biases are left out. Of it come

- the **spectrum**: the singular values of the kernel as a d × (c·window) matrix, a row for each filter, and their
  **effective rank** exp(−Σ pᵢ ln pᵢ), pᵢ = σᵢ / Σσ (Roy and Vetterli, 2007): how many directions the filters fill;
- the **spatial rank**: the same of every h × w slice, averaged: 1 for a line, up to 2 for a cross, up to k;
- the **energy of a group**: the squared norm of the kernel with all other groups of its stage set to zero, as a
  fraction of the sum over the groups. What several groups do to the same tap is no group's, so shares are of that sum.
"""

import fnmatch
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from cruciform.errors import OptionError
from cruciform.nn.forms import collapse_kernel
from cruciform.nn.inspect import plan_of, stage_weights_of
from cruciform.plan import LayerPlan
from cruciform.spec import join_sizes

Weights = list[list[Tensor]]
RANKS = {
    "Effective rank": "how many independent directions the d filters of a layer fill, by the singular values σ of its "
    "kernel: d where all are equally strong, 1 where every filter is a multiple of one.",
    "Spatial rank": "the same of each k×k slice of a filter, averaged: 1 where every slice is a column times a row, at "
    "most 2 for a cross of k×1 and 1×k, at most k for full k×k filters.",
}
"""What the two ranks mean, for people who read them."""


@dataclass(frozen=True)
class GroupFilters:
    """A filter group.

    Attributes:
        stage: The stage that it is in.
        shape: Of its filters, as ``3×1``.
        weight: (d, c, extents).
        energy: Its fraction of the energy of its stage; None where there is no equivalent kernel.
    """

    stage: int
    shape: str
    weight: Tensor
    energy: float | None


@dataclass(frozen=True)
class LayerFilters:
    """The filters of a layer.

    Attributes:
        name: Its dotted name.
        plan: What it computes.
        groups: Its filter groups, stage by stage.
        kernel: What they add up to, (d, c, window); None where there is no equal kernel.
        spectrum: Singular values divided by the largest, descending; empty without a kernel.
        effective_rank: Of the spectrum; None without a kernel.
        spatial_rank: Mean effective rank of the slices of a 2-D kernel; None where there are none.
        why_not: Why there is no equal kernel; empty where there is one.
    """

    name: str
    plan: LayerPlan
    groups: tuple[GroupFilters, ...]
    kernel: Tensor | None
    spectrum: tuple[float, ...]
    effective_rank: float | None
    spatial_rank: float | None
    why_not: str

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain data, without the weights."""
        return {
            "layer": self.name,
            "plan": str(self.plan),
            "groups": [
                {"stage": one.stage, "shape": one.shape, "filters": one.weight.shape[0], "energy": one.energy}
                for one in self.groups
            ],
            "largest_rank": min(self.plan.spec.out_channels, prod(_row_shape(self.plan))),
            "effective_rank": self.effective_rank,
            "spatial_rank": self.spatial_rank,
            "spectrum": list(self.spectrum),
            "why_not": self.why_not,
        }


def network_filters(model: nn.Module, pattern: str = "*") -> list[LayerFilters]:
    """Return the filters of every layer with a kernel larger than 1.

    Args:
        model: The network.
        pattern: Which layers, by name: ``blocks.*``; a part of a name is enough.

    Raises:
        OptionError: No layer is called so.
    """
    found = {name: module for name, module in model.named_modules() if _has_window(module)}
    chosen = [name for name in found if fnmatch.fnmatch(name, pattern) or pattern in name]
    if not chosen:
        known = ", ".join(list(found)[:12]) or "none"
        raise OptionError(f"no layer with a kernel larger than 1 matches {pattern!r}; there are: {known}")
    return [layer_filters(name, found[name]) for name in chosen]


def layer_filters(name: str, layer: nn.Module) -> LayerFilters:
    """Return the filters of one layer: a convolution of torch, or one of basis filters."""
    plan = plan_of(layer)
    if plan is None:
        raise OptionError(f"{name} is a {type(layer).__name__}, which has no filters; choose a convolution")
    with torch.no_grad():
        weights: Weights = [[weight.detach().float().cpu() for weight in stage] for stage in stage_weights_of(layer)]
        finite = all(bool(weight.isfinite().all()) for stage in weights for weight in stage)
        why_not = (plan.obstacle or "") if finite else "its weights have NaN or Inf"
        kernel = None if why_not else _kernel(plan, weights)
        values = singular_values(kernel) if kernel is not None else torch.zeros(0)
        groups = []
        for index, stage in enumerate(plan.stages):
            shares = [None] * len(stage.groups) if why_not else _energies(plan, weights, index)
            groups += [
                GroupFilters(index, join_sizes(group.kernel), weight, share)
                for group, weight, share in zip(stage.groups, weights[index], shares, strict=True)
            ]
        return LayerFilters(
            name=name,
            plan=plan,
            groups=tuple(groups),
            kernel=kernel,
            spectrum=tuple((values / values[0].clamp_min(1e-30)).tolist()) if len(values) else (),
            effective_rank=effective_rank(values) if len(values) else None,
            spatial_rank=_spatial_rank(kernel) if kernel is not None and plan.spec.rank == 2 else None,
            why_not=why_not,
        )


def singular_values(kernel: Tensor) -> Tensor:
    """Return the singular values of a kernel as a matrix with a row for each filter, the largest first."""
    values: Tensor = torch.linalg.svdvals(kernel.flatten(1))
    return values


def effective_rank(values: Tensor) -> float:
    """Return the effective rank of singular values: n for n equal ones, 1 where one alone is not zero, 0 for none."""
    return float(_effective_ranks(values[None])[0])


def _effective_ranks(values: Tensor) -> Tensor:
    """Return the effective rank of each row of singular values."""
    total = values.sum(-1, keepdim=True)
    shares = values / total.clamp_min(1e-30)
    ranks = torch.exp(-torch.special.xlogy(shares, shares).sum(-1))
    return torch.where(total[..., 0] > 0, ranks, torch.zeros_like(ranks))


def _spatial_rank(kernel: Tensor) -> float:
    values = torch.linalg.svdvals(kernel.flatten(0, 1))
    ranks = _effective_ranks(values)
    alive = ranks > 0  # zero slices have no shape
    return float(ranks[alive].mean()) if bool(alive.any()) else 0.0


def _energies(plan: LayerPlan, weights: Weights, stage: int) -> list[float]:
    """Return the fraction of the energy of each group of a stage."""
    alone = []
    for chosen in range(len(weights[stage])):
        others = [w if n == chosen else torch.zeros_like(w) for n, w in enumerate(weights[stage])]
        kernel = _kernel(plan, [others if n == stage else rest for n, rest in enumerate(weights)])
        alone.append(float(kernel.square().sum()))
    total = sum(alone)
    return [energy / total if total else 0.0 for energy in alone]


def _kernel(plan: LayerPlan, weights: Weights) -> Tensor:
    return collapse_kernel(plan, [[(weight, None) for weight in stage] for stage in weights]).weight


def _row_shape(plan: LayerPlan) -> tuple[int, ...]:
    return (plan.spec.in_channels // plan.spec.groups, *plan.spec.kernel)


def _has_window(module: nn.Module) -> bool:
    plan = plan_of(module)
    return plan is not None and prod(plan.spec.kernel) > 1
