"""The parameters of a plan that reproduce a trained layer's outputs best, by second moments of its inputs.

Minimizes ``E‖y − V x̂‖² + λ ‖V − W‖²`` over the kernels V that a plan can represent: y is what the original layer
computes, x̂ what the compressed network delivers to it, W the trained kernel. The ridge λ draws to W and not to zero, so
a plan that can represent W gets exactly W when the inputs are the original's, also where inputs have no full rank.

With ``C = E[x̂ x̂ᵀ] + λI`` and ``R = E[y x̂ᵀ] + λW``:
- one stage: each output with the taps s of its group has ``v_s = R_s C_ss⁻¹``, exact;
- several stages, in alternation: the last stage by the normal equations of the features that the others make, every
  other stage by preconditioned conjugate gradients. Each step lowers the objective.

The result is never worse in E‖y − V x̂‖² than the fit to the weights (``conversion.fit``), which is one of its starts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from cruciform.compression.moments import Moments
from cruciform.compression.stage_algebra import StageAlgebra
from cruciform.conversion.fit import fit_parameters, take_taps, with_biases
from cruciform.errors import ConversionError
from cruciform.nn.forms import GroupParameters
from cruciform.plan import LayerPlan

RIDGE = 1e-3
"""λ as a fraction of the mean of C's diagonal."""
SWEEPS = 6
STEPS = 12  # of conjugate gradients, for each stage of each sweep
ENOUGH = 1e-4  # a sweep that lowers the objective by less than this fraction of E‖y‖² is the last


@dataclass(frozen=True)
class OutputFit:
    """A plan fitted to a layer's outputs.

    Attributes:
        parameters: By stage and group, as ``CompositeConv`` holds them.
        relative_error: E‖y − ŷ‖² / E‖y − E[y]‖² over the calibration inputs (of y itself where no bias can take up the
            mean); 0 is exact.
        weight_fit_error: The same of the fit to the weights alone.
    """

    parameters: list[list[GroupParameters]]
    relative_error: float
    weight_fit_error: float


def fit_outputs(
    plan: LayerPlan, moments: Moments, weight: Tensor, *, centered: bool | None = None, ridge: float = RIDGE
) -> OutputFit:
    """Fit a plan to the outputs of a trained convolution.

    Args:
        plan: What shall reproduce them; nothing non-linear inside, groups=1, one filter group in each later stage.
        moments: Of the patches that the new layer reads, and of the outputs that the original has there, its bias
            included.
        weight: The trained kernel, (d, c, window).
        centered: Whether means are taken up by the plan's last bias, or by a norm after the layer; left out: whether
            the last stage has a bias.
        ridge: λ, as a fraction of the mean of C's diagonal.
    """
    _check(plan, moments, weight)
    weight = weight.detach()
    weight_fit = fit_parameters(plan, weight, None)  # refuses plans that can't be fitted
    about = moments.centered() if (plan.stages[-1].bias if centered is None else centered) else moments
    trained = weight.cpu().double().reshape(plan.spec.out_channels, -1)
    strength = ridge * float(about.inputs.diagonal().mean()) or ridge
    c = about.inputs if about is not moments else about.inputs.clone()  # a large matrix: no more copies than needed
    c.diagonal().add_(strength)
    r = about.cross + strength * trained

    def error_of(kernels: Sequence[Tensor]) -> float:
        """Return E‖y − V x̂‖², without the ridge that C has."""
        v = algebra.collapsed(kernels).reshape(trained.shape)
        own = ((v @ c) * v).sum() - strength * v.square().sum()
        return max(0.0, float(about.outputs.sum() - 2 * (v * about.cross).sum() + own))

    algebra = StageAlgebra(plan)
    by_weights = algebra.embedded(weight_fit)
    if algebra.count == 1:
        fitted = [_solve_rows(algebra, c, r)]
    else:
        best = torch.linalg.solve(c, r.T).T.reshape(weight.shape)
        starts = [algebra.embedded(fit_parameters(plan, best, None)), by_weights]
        start = min(starts, key=lambda kernels: _objective(algebra, kernels, c, r))
        fitted = _alternate(algebra, start, c, r)
    errors = [error_of(fitted), error_of(by_weights)]
    if errors[1] < errors[0]:
        fitted = by_weights
    energy = about.energy or 1.0
    bias = moments.output_mean - algebra.collapsed(fitted).reshape(trained.shape) @ moments.input_mean
    parameters = _as_parameters(plan, fitted, bias, weight)
    return OutputFit(parameters, min(errors) / energy, errors[1] / energy)


def _check(plan: LayerPlan, moments: Moments, weight: Tensor) -> None:
    spec = plan.spec
    if spec.groups != 1:
        raise ConversionError(f"a convolution with groups={spec.groups} can't be fitted to outputs, only groups=1")
    expected = (spec.out_channels, spec.in_channels * prod(spec.kernel))
    if tuple(moments.cross.shape) != expected:
        raise ConversionError(f"the moments are of {tuple(moments.cross.shape)} outputs and patch values, the plan "
                              f"{plan} needs {expected}")  # fmt: skip


def _objective(algebra: StageAlgebra, kernels: Sequence[Tensor], c: Tensor, r: Tensor) -> float:
    """Return the objective without its constant: ⟨V C, V⟩ − 2 ⟨V, R⟩."""
    v = algebra.collapsed(kernels).reshape(r.shape)
    return float(((v @ c) * v).sum() - 2 * (v * r).sum())


def _solve_rows(algebra: StageAlgebra, c: Tensor, r: Tensor) -> Tensor:
    """Return the best kernel of a single stage, group by group."""
    mask = algebra.masks[0]
    channels = algebra.plan.spec.in_channels
    kernel = torch.zeros(len(r), channels, *mask.shape[2:], dtype=torch.float64)
    row = 0
    for group in algebra.plan.stages[0].groups:
        rows = slice(row, row + group.filters)
        taps = mask[row].reshape(1, -1).expand(channels, -1).reshape(-1) > 0
        solved = torch.linalg.solve(c[taps][:, taps], r[rows][:, taps].T).T
        flat = torch.zeros(group.filters, len(taps), dtype=torch.float64)
        flat[:, taps] = solved
        kernel[rows] = flat.reshape(group.filters, channels, *mask.shape[2:])
        row += group.filters
    return kernel


def _alternate(algebra: StageAlgebra, kernels: list[Tensor], c: Tensor, r: Tensor) -> list[Tensor]:
    """Lower the objective stage by stage until a sweep wins nothing."""
    kernels = list(kernels)
    left = _objective(algebra, kernels, c, r)
    scale = abs(left) or 1.0
    for _ in range(SWEEPS):
        kernels[-1] = _solve_last(algebra, kernels, c, r)
        for stage in range(algebra.count - 1):
            kernels[stage] = _descend(algebra, kernels, stage, c, r)
        now = _objective(algebra, kernels, c, r)
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


def _as_parameters(
    plan: LayerPlan, kernels: Sequence[Tensor], bias: Tensor, weight: Tensor
) -> list[list[GroupParameters]]:
    """Return the parameters of all groups, with the bias after the last stage, in the type and place of a kernel."""
    groups: list[list[Tensor]] = []
    for index, (stage, kernel) in enumerate(zip(plan.stages, _balanced(kernels), strict=True)):
        whole = kernel.reshape(*kernel.shape[:2], *plan.stage_spec(index).kernel)
        parts = whole.split([group.filters for group in stage.groups])
        groups.append([take_taps(part, plan, index, number) for number, part in enumerate(parts)])
    return with_biases(plan, groups, weight, bias.to(weight))


def _balanced(kernels: Sequence[Tensor]) -> list[Tensor]:
    """Share the scale of each inner filter evenly between it and what reads it."""
    made = list(kernels)
    for stage in range(len(made) - 1):
        left = made[stage + 1].movedim(1, 0).reshape(made[stage].shape[0], -1).norm(dim=1)
        right = made[stage].reshape(made[stage].shape[0], -1).norm(dim=1)
        scale = torch.where((left > 0) & (right > 0), (right / left.clamp_min(1e-300)).sqrt(), torch.ones_like(left))
        ones = [1] * (made[stage + 1].ndim - 2)
        made[stage + 1] = made[stage + 1] * scale.reshape(1, -1, *ones)
        made[stage] = made[stage] / scale.reshape(-1, *[1] * (made[stage].ndim - 1))
    return made
