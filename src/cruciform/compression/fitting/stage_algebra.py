"""A plan's kernel as a product of its stages' kernels, linear in each of them: the algebra of alternating fits.

Symbols: ``K_s`` the kernel of stage s in its window, (f_s, f_{s-1}, window); ``V`` the equal dense kernel (d, c,
window). An axis belongs to one stage, so ``V = K_t ∘ … ∘ K_1`` is a product over channels and an outer one over axes.
``A`` is the product of the stages after s, ``B`` of those before it: ``V = A ∘ K_s ∘ B``.
"""

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from cruciform.conversion.fit import group_support
from cruciform.nn.forms import GroupParameters, embed_kernel
from cruciform.plan import LayerPlan

AXES = "xyz"


class StageAlgebra:
    """The stages of a plan, as tensors without the axes that other stages own.

    Args:
        plan: What is fitted; nothing non-linear inside, and no group reaches out of the window.
    """

    def __init__(self, plan: LayerPlan) -> None:
        self.plan, self.count = plan, len(plan.stages)
        self.window = plan.spec.kernel
        self._axes = ["".join(AXES[a] for a, owner in enumerate(plan.owners) if owner == s) for s in range(self.count)]
        self._all = AXES[: plan.spec.rank]
        self.masks = [self._mask(stage) for stage in range(self.count)]

    def _mask(self, stage: int) -> Tensor:
        """Which values of a stage's kernel its groups have: (filters, 1, taps of its axes)."""
        window = self.plan.stage_spec(stage).kernel
        taps = [
            group_support(self.plan, stage, number).double().reshape(1, 1, *window).expand(group.filters, 1, *window)
            for number, group in enumerate(self.plan.stages[stage].groups)
        ]
        return self._own_axes(torch.cat(taps), stage)

    def values_of_groups(self) -> list[Tensor]:
        """Return for each group of the first stage, where it is the only one, which of a patch's values it reads, (p,).

        Groups of one shape read the same.
        """
        channels = self.plan.spec.in_channels
        return [
            group_support(self.plan, 0, number).flatten().repeat(channels)
            for number in range(len(self.plan.stages[0].groups))
        ]

    def _own_axes(self, kernel: Tensor, stage: int) -> Tensor:
        sizes = [size for axis, size in enumerate(kernel.shape[2:]) if self.plan.owners[axis] == stage]
        return kernel.reshape(*kernel.shape[:2], *sizes)

    def kernel_shape(self, stage: int) -> tuple[int, ...]:
        """Return the shape of a stage's kernel: (filters, filters before, taps of its axes)."""
        stages = self.plan.stages
        before = stages[stage - 1].filters if stage else self.plan.spec.in_channels
        return (stages[stage].filters, before, *self.masks[stage].shape[2:])

    def embedded(self, parameters: Sequence[Sequence[GroupParameters]]) -> list[Tensor]:
        """Return the kernels of all stages, each group in its stage's window, in float64."""
        kernels = []
        for stage, pairs in enumerate(parameters):
            spec = self.plan.stage_spec(stage)
            margin = ((0, 0),) * spec.rank
            parts = [
                embed_kernel(weight.detach().cpu().double(), group, spec.kernel, margin)
                for (weight, _), group in zip(pairs, self.plan.stages[stage].groups, strict=True)
            ]
            kernels.append(self._own_axes(torch.cat(parts), stage))
        return kernels

    def collapsed(self, kernels: Sequence[Tensor]) -> Tensor:
        """Return V, (d, c, window)."""
        whole = self._product(kernels, 0, self.count)
        return self._ordered(whole)

    def _product(self, kernels: Sequence[Tensor], first: int, last: int) -> Tensor:
        """Return the product of stages first … last − 1, its axes in the order of those stages from the last."""
        whole = kernels[last - 1]
        for stage in reversed(range(first, last - 1)):
            inner = kernels[stage]
            d, m = whole.shape[:2]
            # (d, axes, m) × (m, c · axes): one matrix product, then channels in front again.
            left = whole.movedim(1, -1).reshape(-1, m)
            made = (left @ inner.reshape(m, -1)).reshape(d, *whole.shape[2:], *inner.shape[1:])
            whole = made.movedim(whole.ndim - 1, 1)
        return whole

    def _order(self, first: int, last: int) -> str:
        return "".join(self._axes[stage] for stage in reversed(range(first, last)))

    def _ordered(self, whole: Tensor) -> Tensor:
        order = self._order(0, self.count)
        return whole.permute(0, 1, *(2 + order.index(axis) for axis in self._all))

    def before(self, kernels: Sequence[Tensor], stage: int) -> Tensor | None:
        """Return B, (f_{s-1}, c, axes of the stages before); None before the first stage."""
        return self._product(kernels, 0, stage) if stage else None

    def after(self, kernels: Sequence[Tensor], stage: int) -> Tensor | None:
        """Return A, (d, f_s, axes of the stages after); None after the last stage."""
        return self._product(kernels, stage + 1, self.count) if stage + 1 < self.count else None

    def transposed(self, gradient: Tensor, kernels: Sequence[Tensor], stage: int) -> Tensor:
        """Return what a gradient by V, (d, c, window), is by the kernel of one stage, within its mask."""
        a, b = self.after(kernels, stage), self.before(kernels, stage)
        order = self._order(stage + 1, self.count), self._axes[stage], self._order(0, stage)
        places = [2 + self._all.index(axis) for axis in "".join(order)]
        n_after, n_own = len(order[0]), len(order[1])
        # (d, after …, own …, c, before …)
        arranged = gradient.permute(0, *places[: n_after + n_own], 1, *places[n_after + n_own :])
        own = arranged.shape[1 + n_after : 1 + n_after + n_own]
        rows, columns = prod(arranged.shape[: 1 + n_after]), prod(arranged.shape[1 + n_after + n_own :])
        matrix = arranged.reshape(rows, prod(own), columns)
        if a is not None:
            matrix = torch.einsum("rf,rok->fok", a.movedim(1, -1).reshape(rows, -1), matrix)
        if b is not None:
            matrix = torch.einsum("fok,gk->fog", matrix, b.reshape(b.shape[0], -1))
        made = matrix.movedim(1, -1).reshape(matrix.shape[0], -1, *own)
        return made * self.masks[stage]

    def features(self, rows: Tensor, kernels: Sequence[Tensor], stage: int) -> Tensor:
        """Return rows of patch values, (n, p), as rows of the features that a stage reads, (n, f_{s-1} · own taps).

        For the last stage alone: its own axes and those of the stages before it are all there are.
        """
        b = self.before(kernels, stage)
        if b is None:
            return rows
        order = self._axes[stage], self._order(0, stage)
        n_own = len(order[0])
        places = [2 + self._all.index(axis) for axis in "".join(order)]
        arranged = rows.reshape(len(rows), -1, *self.window).permute(0, *places[:n_own], 1, *places[n_own:])
        own = prod(arranged.shape[1 : 1 + n_own])
        made = arranged.reshape(len(rows) * own, -1) @ b.reshape(b.shape[0], -1).T
        return made.reshape(len(rows), own, -1).movedim(2, 1).reshape(len(rows), -1)

    def mean_block(self, c: Tensor, kernels: Sequence[Tensor], stage: int) -> Tensor:
        """Return C over the features that a stage reads, averaged over the taps of the stages after it."""
        b = self.before(kernels, stage)
        after, own, before = self._order(stage + 1, self.count), self._axes[stage], self._order(0, stage)
        places = [1 + self._all.index(axis) for axis in after + own + before]
        n_after, n_own = len(after), len(own)
        # (after …, own …, c, before …) for rows and for columns
        order = [*places[: n_after + n_own], 0, *places[n_after + n_own :]]
        index = torch.arange(len(c)).reshape(-1, *self.window).permute(order)
        taps = prod(index.shape[:n_after])
        blocks = index.reshape(taps, -1)
        mean = sum((c[block][:, block] for block in blocks), torch.zeros(1, dtype=c.dtype)) / taps
        size = prod(index.shape[n_after : n_after + n_own])
        if b is None:
            # (own taps, c) → (c, own taps), as kernels are ordered
            turn = torch.arange(len(mean)).reshape(size, -1).T.reshape(-1)
            return mean[turn][:, turn]
        flat = b.reshape(b.shape[0], -1)
        half = (mean.reshape(len(mean) * size, -1) @ flat.T).reshape(len(mean), size, -1)
        half = half.movedim(2, 1).reshape(len(mean), -1)
        both = (half.T.reshape(half.shape[1] * size, -1) @ flat.T).reshape(half.shape[1], size, -1)
        return both.movedim(2, 1).reshape(half.shape[1], -1)
