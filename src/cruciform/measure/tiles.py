"""Filters as small pictures: plain numbers from −1 to 1, None where a filter has no tap or no finite weight.

The strongest filters come first. A filter has a slice for each channel that it reads; what is shown is the slice with
the most energy, scaled by its own largest weight. A line of a 1-D filter is one row; a
3-D filter is its planes side by side.
"""

from contextlib import suppress
from math import isfinite

import torch
from torch import Tensor

from cruciform.errors import NotLinearError
from cruciform.measure.filters import LayerFilters
from cruciform.nn.forms import embed_kernel

Tile = list[list[float | None]]


def basis_tiles(layer: LayerFilters, count: int) -> list[tuple[str, list[Tile]]]:
    """Return (shape, tiles) of each group of the first stage, every filter within the window of the layer."""
    window = layer.plan.spec.kernel
    none = ((0, 0),) * len(window)
    found = []
    for group, one in zip(layer.plan.stages[0].groups, layer.groups, strict=False):
        slices = strongest_slices(one.weight, count)[:, None]
        taps = torch.ones_like(slices)
        with suppress(NotLinearError):  # where it reaches out of the window it is shown as it is
            slices, taps = (embed_kernel(tensor, group, window, none) for tensor in (slices, taps))
        found.append((one.shape, [_tile(s[0], t[0]) for s, t in zip(slices, taps, strict=True)]))
    return found


def kernel_tiles(layer: LayerFilters, count: int) -> list[Tile]:
    """Return tiles of the kernels that the layer is equivalent to; none where there is none."""
    if layer.kernel is None:
        return []
    return [_tile(one, torch.ones_like(one)) for one in strongest_slices(layer.kernel, count)]


def join_tile(layer: LayerFilters, count: int) -> Tile:
    """Return how the last stage mixes basis filters: a row for each of the strongest kernels, a column for each basis
    filter, scaled by the largest weight; nothing where there is no 1×1 join of two stages.
    """  # noqa: D205
    last = layer.groups[-1]
    if len(layer.plan.stages) != 2 or layer.kernel is None or last.weight[0, 0].numel() != 1 or last.stage != 1:
        return []
    if len(layer.plan.stages[1].groups) > 1:
        return []
    mixing = last.weight.flatten(1)[_strongest(layer.kernel, count)]
    return [list(row) for row in (mixing / mixing.abs().max().clamp_min(1e-30)).tolist()]


def energy_tile(layer: LayerFilters) -> Tile:
    """Return the fraction of the kernel's energy at each tap; nothing where there is no kernel."""
    if layer.kernel is None:
        return []
    energy = layer.kernel.square().sum((0, 1))
    return [list(row) for row in _flat(energy / energy.sum().clamp_min(1e-30)).tolist()]


def strongest_slices(weight: Tensor, count: int) -> Tensor:
    """Return, of the filters with the most energy, the slice with the most: (count, extents)."""
    filters = _strongest(weight, count)
    channels = weight[filters].flatten(2).square().sum(2).argmax(1)
    return weight[filters, channels]


def _strongest(weight: Tensor, count: int) -> Tensor:
    return weight.flatten(1).square().sum(1).argsort(descending=True, stable=True)[:count]


def _tile(values: Tensor, taps: Tensor) -> Tile:
    scaled = _flat(values / values.abs().max().clamp_min(1e-30)).tolist()
    there = _flat(taps).tolist()
    return [
        [value if tap and isfinite(value) else None for value, tap in zip(*rows, strict=True)]
        for rows in zip(scaled, there, strict=True)
    ]


def _flat(values: Tensor) -> Tensor:
    """Return a 1-D filter as a row, and a 3-D filter as its planes side by side."""
    if values.ndim == 1:
        return values[None]
    return values if values.ndim == 2 else values.transpose(0, 1).flatten(1)
