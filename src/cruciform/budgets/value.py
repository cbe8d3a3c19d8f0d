"""The value of a plan: the fraction of a kernel's energy that it can keep.

**This is a proxy.** It measures how well a plan can approximate a kernel, not how well a network of such plans learns:
no cheap number predicts that. Where you know better, set importances of layers, or protect some.

For a trained network the kernel is the layer's own. Before training it is a random one whose neighboring taps are
correlated, ρ^distance, as in filters learned from natural images. The kept energy hardly depends on the number of
channels, only on their ratio, so a few channels suffice.
"""

from functools import lru_cache

import torch
from torch import Tensor

from cruciform.conversion.fit import fit_parameters, relative_residual
from cruciform.plan import LayerPlan
from cruciform.schemes import make_plan
from cruciform.spec import ConvSpec, Ints

CORRELATION = 0.5
"""ρ, the correlation of neighboring taps of a random kernel."""

MOST_CHANNELS = 32


def kept_energy(plan: LayerPlan, weight: Tensor) -> float:
    """Return the fraction of a kernel's energy that a fitted plan keeps."""
    if plan.is_dense:
        return 1.0
    fitted = fit_parameters(plan, weight, None)
    return max(0.0, 1 - relative_residual(plan, fitted, weight) ** 2)


def expected_energy(spec: ConvSpec, scheme: str) -> float:
    """Return the fraction of energy that a scheme keeps of a random, smooth kernel."""
    largest = max(spec.in_channels, spec.out_channels)
    shrink = max(1.0, largest / MOST_CHANNELS)
    c, d = (max(1, round(channels / shrink)) for channels in (spec.in_channels, spec.out_channels))
    return _expected(c, d, spec.kernel, scheme)


@lru_cache(maxsize=4096)
def _expected(c: int, d: int, window: Ints, scheme: str) -> float:
    small = ConvSpec(c, d, window, bias=False)
    return kept_energy(make_plan(small, scheme), natural_kernel(small))


def natural_kernel(spec: ConvSpec, *, seed: int = 0) -> Tensor:
    """Return a random kernel whose taps are correlated by ρ^distance along every axis."""
    generator = torch.Generator().manual_seed(seed)
    kernel = torch.randn(spec.out_channels, spec.in_channels, *spec.kernel, generator=generator, dtype=torch.float64)
    for axis, extent in enumerate(spec.kernel):
        places = torch.arange(extent, dtype=torch.float64)
        root = torch.linalg.cholesky(CORRELATION ** (places[:, None] - places[None]).abs())
        kernel = torch.tensordot(kernel, root.T, dims=([2 + axis], [0])).movedim(-1, 2 + axis)
    return kernel
