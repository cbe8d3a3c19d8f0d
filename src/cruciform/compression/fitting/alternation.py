"""Alternating least squares for plans of several stages: each step lowers the objective.

The last stage by the normal equations of the features that the others make, every other stage by preconditioned
conjugate gradients.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from cruciform.compression.fitting.output_problem import OutputProblem
from cruciform.compression.fitting.stage_algebra import StageAlgebra
from cruciform.errors import ConversionError

STEPS = 12  # of conjugate gradients, for each stage of each sweep
ENOUGH = 1e-4  # a sweep that lowers the objective by less than this fraction of it is the last


def alternate(algebra: StageAlgebra, kernels: list[Tensor], problem: OutputProblem, *, sweeps: int) -> list[Tensor]:
    """Lower the objective stage by stage until a sweep wins nothing; return the mixed kernels.

    Args:
        algebra: Of the plan.
        kernels: The start, mixed.
        problem: What is fitted.
        sweeps: How many, at most; 0 solves the last stage alone.
    """
    kernels, c, r = list(kernels), problem.c, problem.target
    left = problem.objective(algebra.collapsed(kernels)) if sweeps else 0.0
    scale = abs(left) or 1.0
    for _ in range(sweeps):
        kernels[-1] = _solve_last(algebra, kernels, c, r)
        for stage in range(algebra.count - 1):
            kernels[stage] = _descend(algebra, kernels, stage, c, r)
        now = problem.objective(algebra.collapsed(kernels))
        if left - now <= ENOUGH * scale:
            break
        left = now
    kernels[-1] = _solve_last(algebra, kernels, c, r)
    return kernels


def _solve_last(algebra: StageAlgebra, kernels: Sequence[Tensor], c: Tensor, r: Tensor) -> Tensor:
    """Return the best kernel of the last stage for the others: least squares on the features that they make."""
    last = algebra.count - 1
    targets = algebra.features(r, kernels, last)
    gram = algebra.features(algebra.features(c, kernels, last).T.contiguous(), kernels, last)
    gram = (gram + gram.T) / 2
    jitter = 1e-12 * float(gram.diagonal().mean())  # a filter of zeros makes no feature
    gram.diagonal().add_(jitter if jitter > 0 else 1.0)
    solved: Tensor = torch.linalg.solve(gram, targets.T).T
    # Features are ordered (filter before, taps), as the kernel is.
    return solved.reshape(kernels[last].shape)


def _descend(algebra: StageAlgebra, kernels: Sequence[Tensor], stage: int, c: Tensor, r: Tensor) -> Tensor:
    """Return a better kernel of one stage: preconditioned conjugate gradients on its normal equations."""
    precondition = _Preconditioner(algebra, kernels, stage, c)

    def curvature(kernel: Tensor) -> Tensor:
        changed = [*kernels[:stage], kernel, *kernels[stage + 1 :]]
        v = algebra.collapsed(changed).reshape(r.shape)
        return algebra.transposed((v @ c).reshape(len(r), -1, *algebra.window), kernels, stage)

    x = kernels[stage]
    rest = algebra.transposed(r.reshape(len(r), -1, *algebra.window), kernels, stage) - curvature(x)
    ready = precondition(rest)
    direction, product = ready, float((rest * ready).sum())
    first = product
    for _ in range(STEPS):
        if product <= 1e-14 * first or product <= 0:
            break
        bent = curvature(direction)
        along = float((direction * bent).sum())
        if along <= 0:  # filters that nothing after them reads
            break
        length = product / along
        x, rest = x + length * direction, rest - length * bent
        ready = precondition(rest)
        before, product = product, float((rest * ready).sum())
        direction = ready + product / before * direction
    return x


class _Preconditioner:
    """The inverse of a product of two matrices that is near the curvature: over filters, and over taps and channels."""

    def __init__(self, algebra: StageAlgebra, kernels: Sequence[Tensor], stage: int, c: Tensor) -> None:
        after = algebra.after(kernels, stage)
        if after is None:
            raise ConversionError("the last stage is solved exactly")
        columns = after.movedim(1, -1).reshape(-1, after.shape[1])
        gram = columns.T @ columns
        gram.diagonal().add_(1e-9 * float(gram.diagonal().mean()) or 1.0)
        inputs = algebra.mean_block(c, kernels, stage)
        inputs.diagonal().add_(1e-9 * float(inputs.diagonal().mean()) or 1.0)
        self._parts: list[tuple[slice, Tensor, Tensor, Tensor]] = []
        row, mask = 0, algebra.masks[stage]
        before = kernels[stage].shape[1]
        for group in algebra.plan.stages[stage].groups:
            rows = slice(row, row + group.filters)
            taps = mask[row].reshape(1, -1).expand(before, -1).reshape(-1) > 0
            over_filters = torch.linalg.inv(gram[rows, rows])
            over_inputs = torch.linalg.inv(inputs[taps][:, taps])
            self._parts.append((rows, taps, over_filters, over_inputs))
            row += group.filters

    def __call__(self, rest: Tensor) -> Tensor:
        flat = rest.reshape(rest.shape[0], -1)
        made = torch.zeros_like(flat)
        for rows, taps, over_filters, over_inputs in self._parts:
            part = torch.zeros_like(flat[rows])
            part[:, taps] = over_filters @ flat[rows][:, taps] @ over_inputs
            made[rows] = part
        return made.reshape(rest.shape)
