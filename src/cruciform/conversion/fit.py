"""Weights from a trained kernel: the basis filters, and join, that reproduce it best in the least-squares sense.

Symbols: ``W`` the dense kernel as a matrix, a row for each output (and tap of the join), a column for each input
channel and tap of the window; ``J`` the join (rows × m), ``B`` the basis filters (m × columns). A filter group may
only use the columns of its own taps, its *support*.

- One stage: each output keeps the taps that its group has. That is the projection on the support, hence optimal.
- Two stages: ``W ≈ J·B`` with every row of B zero outside its group's support. J starts from the leading singular
  vectors of the columns that no smaller group has; then B for J and J for B are solved in closed form in turn. Where
  the plan can represent W the start is exact already.
- A chain of single groups (``sf`` in 3-D): one truncated SVD for each stage.

All in double precision on the CPU, wherever the kernel lives; singular vectors come from Gram matrices of rows × rows,
never from an SVD of the whole matrix, so no more is allocated than a small multiple of the kernel.
"""

import operator
from collections.abc import Sequence

import torch
from torch import Tensor

from cruciform.errors import ConversionError
from cruciform.nn.forms import GroupParameters, collapse_kernel, embed_kernel
from cruciform.plan import LayerPlan
from cruciform.spec import join_sizes, span

SWEEPS = 12
ENOUGH = 1e-5  # a sweep that wins less of the energy than this is the last


def fit_parameters(
    plan: LayerPlan, weight: Tensor, bias: Tensor | None, *, sweeps: int = SWEEPS
) -> list[list[GroupParameters]]:
    """Return the parameters of the plan, by stage and group, that reproduce a dense kernel best.

    Args:
        plan: What shall reproduce it.
        weight: The dense kernel, (d, c / groups, window) of the plan's spec.
        bias: Its bias.
        sweeps: Of the alternation of two stages, at most.
    """
    spec = plan.spec
    expected = (spec.out_channels, spec.in_channels // spec.groups, *spec.kernel)
    if tuple(weight.shape) != expected:
        raise ConversionError(f"the kernel has shape {tuple(weight.shape)}, but the plan {plan} needs {expected}")
    if plan.obstacle:
        raise ConversionError(f"{plan} can't be fitted to a kernel: {plan.obstacle}")
    for index, stage in enumerate(plan.stages):
        window = plan.stage_spec(index).kernel
        for group in stage.groups:
            if any(map(operator.gt, map(span, group.kernel, group.dilation), window)):
                raise ConversionError(f"the group [{group}] is larger than the kernel, {join_sizes(window)}")
    if weight.is_meta:
        raise ConversionError("the kernel is on the meta device and has no values to fit")
    if not bool(torch.isfinite(weight).all()):
        raise ConversionError("the kernel has NaN or Inf, so nothing can be fitted to it")
    kernels: list[list[Tensor]]
    if len(plan.stages) == 1:
        kernels = [_crop_rows(plan, weight)]
    elif len(plan.stages) == 2 and len(plan.stages[1].groups) == 1:
        kernels = _fit_two_stages(plan, weight, sweeps)
    elif all(len(stage.groups) == 1 for stage in plan.stages):
        kernels = _fit_chain(plan, weight)
    else:
        raise ConversionError(
            f"{plan} can't be fitted: every stage after the first needs exactly one filter group, and with three or "
            "more stages the first one too"
        )
    return with_biases(plan, kernels, weight, bias)


def relative_residual(plan: LayerPlan, parameters: Sequence[Sequence[GroupParameters]], weight: Tensor) -> float:
    """Return ‖W − fitted‖ / ‖W‖; 0 for a kernel of zeros that is matched."""
    fitted = collapse_kernel(plan, parameters)
    norm, rest = weight.double().norm(), (weight.double() - fitted.weight.double()).norm()
    return float(rest / norm) if norm > 0 else float(rest)


def _crop_rows(plan: LayerPlan, weight: Tensor) -> list[Tensor]:
    """Return for each group the rows of its filters, cropped to its taps."""
    kernels: list[Tensor] = []
    row = 0
    for group in plan.stages[0].groups:
        rows = weight[row : row + group.filters]
        kernels.append(take_taps(rows, plan, 0, len(kernels)))
        row += group.filters
    return kernels


def take_taps(kernel: Tensor, plan: LayerPlan, stage: int, number: int) -> Tensor:
    """Crop a kernel of the stage's window to the taps of one of its groups."""
    group, support = plan.stages[stage].groups[number], group_support(plan, stage, number)
    return kernel.flatten(2)[:, :, support.to(kernel.device)].reshape(*kernel.shape[:2], *group.kernel)


def group_support(plan: LayerPlan, stage: int, number: int) -> Tensor:
    """Which taps of the stage's window a group has."""
    spec, group = plan.stage_spec(stage), plan.stages[stage].groups[number]
    ones = torch.ones(1, 1, *group.kernel)
    return embed_kernel(ones, group, spec.kernel, ((0, 0),) * spec.rank).flatten() > 0


def _fit_two_stages(plan: LayerPlan, weight: Tensor, sweeps: int) -> list[list[Tensor]]:
    inner = plan.stage_spec(0)
    matrix = unfold_kernel(plan, weight.double().cpu(), 1)
    c, groups = inner.in_channels, plan.stages[0].groups
    # Columns are ordered (channel, tap); the support of a group repeats for each channel.
    supports = torch.stack([group_support(plan, 0, n).repeat(c) for n in range(len(groups))])
    owner = torch.repeat_interleave(torch.arange(len(groups)), torch.tensor([g.filters for g in groups]))
    join = _start(matrix, supports, [g.filters for g in groups])
    basis = _solve_basis(matrix, join, supports[owner])
    total, left = float(matrix.square().sum()), float("inf")
    for _ in range(sweeps):
        rest = float((matrix - join @ basis).square().sum())
        if rest <= 1e-24 * total or left - rest <= ENOUGH * total:
            break
        left = rest
        join = (_pseudo_inverse(basis.T) @ matrix.T).T
        basis = _solve_basis(matrix, join, supports[owner])
    join, basis = _balanced(join, basis)
    kernels = [take_taps(basis[owner == n].reshape(-1, c, *inner.kernel), plan, 0, n) for n in range(len(groups))]
    return [kernels, [_fold(plan, join, 1)]]


def unfold_kernel(plan: LayerPlan, kernel: Tensor, stage: int) -> Tensor:
    """Return a kernel with rows (output, taps of the stage's axes) and columns (channel, taps of the other axes)."""
    own = [axis for axis in range(2, kernel.ndim) if plan.owners[axis - 2] == stage]
    others = [axis for axis in range(2, kernel.ndim) if plan.owners[axis - 2] != stage]
    rows = kernel.permute(0, *own, 1, *others)
    return rows.reshape(rows.shape[: 1 + len(own)].numel(), -1)


def _fold(plan: LayerPlan, join: Tensor, stage: int) -> Tensor:
    """Return the stage's J as a kernel (d, m, window), cut to the taps of its one group."""
    window, d = plan.stage_spec(stage).kernel, plan.stages[stage].filters
    kernel = join.reshape(d, -1, join.shape[1]).transpose(1, 2).reshape(d, join.shape[1], *window)
    return take_taps(kernel, plan, stage, 0)


def _start(matrix: Tensor, supports: Tensor, filters: Sequence[int]) -> Tensor:
    """Return J from the columns that separate the groups, exactly where the plan can represent the kernel.

    A group shows alone in those of its columns that no group has but such as contain all of it; what these, done
    before it, explain of the columns is taken out first.
    """
    parts: dict[int, Tensor] = {}
    for n in sorted(range(len(filters)), key=lambda n: -int(supports[n].sum())):
        around = [m for m in parts if bool((supports[m] | ~supports[n]).all())]
        others = [m for m in range(len(filters)) if m != n and m not in around]
        alone = supports[n] & ~supports[others].any(0)
        columns = matrix[:, alone if bool(alone.any()) else supports[n]]
        if around:
            explained = torch.linalg.qr(torch.cat([parts[m] for m in around], dim=1)).Q
            columns = columns - explained @ (explained.T @ columns)
        parts[n] = _leading_vectors(columns, filters[n])
    return torch.cat([parts[n] for n in range(len(filters))], dim=1)


def _leading_vectors(columns: Tensor, count: int) -> Tensor:
    """Return the leading left singular vectors, with zeros for those that the rows have no room for."""
    _, vectors = torch.linalg.eigh(columns @ columns.T)
    vectors = vectors.flip(1)[:, :count]
    return torch.nn.functional.pad(vectors, (0, count - vectors.shape[1]))


def _solve_basis(matrix: Tensor, join: Tensor, allowed: Tensor) -> Tensor:
    """Return the best B for J: columns with the same allowed rows are solved together."""
    basis = matrix.new_zeros(join.shape[1], matrix.shape[1])
    patterns, which = torch.unique(allowed.T, dim=0, return_inverse=True)
    for index, pattern in enumerate(patterns):
        if bool(pattern.any()):
            part, columns = join[:, pattern], (which == index).nonzero()[:, 0]
            rows = pattern.nonzero()[:, 0]
            basis[rows[:, None], columns[None, :]] = _pseudo_inverse(part) @ matrix[:, columns]
    return basis


def _pseudo_inverse(matrix: Tensor) -> Tensor:
    """Return the pseudo-inverse; a tall matrix is reduced to a square one first, which keeps its condition."""
    if matrix.shape[0] <= matrix.shape[1]:
        inverse: Tensor = torch.linalg.pinv(matrix, rtol=1e-12)
        return inverse
    q, r = torch.linalg.qr(matrix)
    reduced: Tensor = torch.linalg.pinv(r, rtol=1e-12) @ q.T
    return reduced


def _balanced(join: Tensor, basis: Tensor) -> tuple[Tensor, Tensor]:
    """Split the scale of each basis filter evenly between it and its column of the join."""
    left, right = join.norm(dim=0), basis.norm(dim=1)
    scale = torch.where((left > 0) & (right > 0), (right / left.clamp_min(1e-300)).sqrt(), torch.ones_like(left))
    return join * scale, basis / scale[:, None]


def _fit_chain(plan: LayerPlan, weight: Tensor) -> list[list[Tensor]]:
    """Split off one stage after the other, from the last, by truncated SVD."""
    kernels: list[list[Tensor]] = []
    rest = weight.double().cpu()
    for stage in reversed(range(1, len(plan.stages))):
        matrix = unfold_kernel(plan, rest, stage)
        vectors = _leading_vectors(matrix, plan.stages[stage - 1].filters)
        join, basis = _balanced(vectors, vectors.T @ matrix)
        kernels.insert(0, [_fold(plan, join, stage)])
        # What is left has one tap along the axes that were split off.
        left = [1 if plan.owners[axis - 2] == stage else rest.shape[axis] for axis in range(2, rest.ndim)]
        rest = basis.reshape(-1, weight.shape[1], *left)
    kernels.insert(0, [take_taps(rest, plan, 0, 0)])
    return kernels


def with_biases(
    plan: LayerPlan, kernels: Sequence[Sequence[Tensor]], weight: Tensor, bias: Tensor | None
) -> list[list[GroupParameters]]:
    """Add biases: the kernel's own after the last stage, zeros before; in the kernel's dtype, on its device."""
    result: list[list[GroupParameters]] = []
    for index, (stage, group_kernels) in enumerate(zip(plan.stages, kernels, strict=True)):
        pairs: list[GroupParameters] = []
        row = 0
        for group, kernel in zip(stage.groups, group_kernels, strict=True):
            own: Tensor | None = None
            if stage.bias:
                zeros = weight.new_zeros(group.filters)
                last = index == len(plan.stages) - 1 and bias is not None
                own = bias[row : row + group.filters].clone() if last and bias is not None else zeros
            pairs.append((kernel.to(weight), own))
            row += group.filters
        result.append(pairs)
    return result
