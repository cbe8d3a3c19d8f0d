"""The parameters of a plan that reproduce a trained layer's outputs best, by second moments of its inputs.

- One stage: each output with the taps s of its group has ``v_s = R_s C_ss⁻¹``. That is the best for each output by
  itself; errors of outputs of different shapes that G counts together are not weighed against each other.
- Several stages: in alternation (``alternation``), from the best of several starts.

The result is never worse in E[eᵀ G e] than the fit to the weights (``conversion.fit``), which is one of the starts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from cruciform.compression.fitting.alternation import alternate
from cruciform.compression.fitting.correction import Correction
from cruciform.compression.fitting.moments import Moments
from cruciform.compression.fitting.output_problem import RIDGE, OutputProblem
from cruciform.compression.fitting.stage_algebra import StageAlgebra
from cruciform.conversion.fit import fit_parameters, take_taps, with_biases
from cruciform.errors import ConversionError
from cruciform.nn.forms import GroupParameters
from cruciform.plan import LayerPlan

SWEEPS = 6


@dataclass(frozen=True)
class OutputFit:
    """A plan fitted to a layer's outputs.

    Attributes:
        parameters: By stage and group, as ``CompositeConv`` holds them.
        relative_error: E[eᵀ G e] over that of e = y − E[y] (of y itself where no bias can take up the mean), over the
            calibration inputs; 0 is exact.
        weight_fit_error: The same of the fit to the weights alone.
        error: E[eᵀ G e] itself.
        bias: What the outputs need for the means that are wanted, (d,), also where the plan has no bias.
    """

    parameters: list[list[GroupParameters]]
    relative_error: float
    weight_fit_error: float
    error: float
    bias: Tensor


def fit_outputs(
    plan: LayerPlan,
    moments: Moments,
    weight: Tensor,
    *,
    centered: bool | None = None,
    metric: Tensor | None = None,
    ridge: float = RIDGE,
    correction: Correction | None = None,
) -> OutputFit:
    """Fit one plan to the outputs of a trained convolution.

    Args:
        plan: As for ``fit_plan``.
        moments: As for ``OutputProblem``.
        weight: The trained kernel, (d, c, window).
        centered: As for ``OutputProblem``; left out: whether the last stage has a bias.
        metric: As for ``OutputProblem``.
        ridge: As for ``OutputProblem``.
        correction: How much of the errors of earlier layers it corrects; None: as much as it can.
    """
    takes_means = plan.stages[-1].bias if centered is None else centered
    problem = OutputProblem(
        moments,
        weight,
        centered=takes_means,
        metric=metric,
        ridge=ridge,
        fractions=correction.fractions if correction else None,
        wanted_mean=correction.wanted_mean if correction else None,
    )
    return fit_plan(plan, problem)


def fit_plan(plan: LayerPlan, problem: OutputProblem) -> OutputFit:
    """Fit a plan to the outputs of a layer.

    Args:
        plan: What shall reproduce them; nothing non-linear inside, groups=1, one filter group in each later stage.
        problem: The layer.
    """
    _refuse_groups(plan)
    weight_fit = fit_parameters(plan, problem.weight, None)  # refuses plans that can't be fitted
    algebra = StageAlgebra(plan)
    by_weights = algebra.embedded(weight_fit)
    by_weights[-1] = _mixed(problem.root, by_weights[-1])
    if algebra.count == 1:
        fitted = _solve_stage(algebra, problem)
    else:
        start = problem.whitened_start(algebra) or algebra.embedded(fit_parameters(plan, problem.best, None))
        first = min((start, by_weights), key=lambda kernels: problem.objective(algebra.collapsed(kernels)))
        fitted = alternate(algebra, first, problem, sweeps=SWEEPS)
    errors = [problem.error(algebra.collapsed(kernels)) for kernels in (fitted, by_weights)]
    if errors[1] < errors[0]:
        fitted = by_weights
    fitted[-1] = _mixed(torch.linalg.inv(problem.root), fitted[-1])
    collapsed = algebra.collapsed(fitted).reshape(problem.target.shape)
    bias = problem.output_mean - collapsed @ problem.input_mean
    whole = problem.energy or 1.0
    parameters = _as_parameters(plan, fitted, bias, problem.weight)
    return OutputFit(parameters, min(errors) / whole, errors[1] / whole, min(errors), bias)


class QuickFit(NamedTuple):
    """A plan fitted in a fraction of the time, to compare plans by.

    Attributes:
        error: E[eᵀ G e].
        kernel: The equal dense kernel, (d, c, window).
        bias: What goes with it, so that means are kept.
    """

    error: float
    kernel: Tensor
    bias: Tensor


def fit_quickly(plan: LayerPlan, problem: OutputProblem, *, order: Sequence[int] | None = None) -> QuickFit:
    """Fit a plan to the outputs of a layer by its start and an exact last stage.

    Args:
        plan: As for ``fit_plan``.
        problem: The layer.
        order: For each filter of a plan of one stage the output that it shall reproduce; None: its own. The kernel that
            is returned has the outputs of the layer in their own order.
    """
    _refuse_groups(plan)
    algebra = StageAlgebra(plan)
    if algebra.count == 1:
        fitted = _solve_stage(algebra, problem, order)
    else:
        start = problem.whitened_start(algebra)
        start = start or algebra.embedded(fit_parameters(plan, problem.best, None, sweeps=1))
        fitted = alternate(algebra, start, problem, sweeps=0)
    mixed = algebra.collapsed(fitted)
    kernel = _mixed(torch.linalg.inv(problem.root), mixed.reshape(problem.weight.shape))
    return QuickFit(problem.error(mixed), kernel, problem.output_mean - kernel.flatten(1) @ problem.input_mean)


def _refuse_groups(plan: LayerPlan) -> None:
    if plan.spec.groups != 1:
        raise ConversionError(f"a convolution with groups={plan.spec.groups} can't be fitted to outputs, only groups=1")


def _solve_stage(algebra: StageAlgebra, problem: OutputProblem, order: Sequence[int] | None = None) -> list[Tensor]:
    placed = torch.arange(len(problem.weight)) if order is None else torch.tensor(list(order))
    return [_mixed(problem.root, _solve_rows(algebra, problem, placed))]


def _mixed(matrix: Tensor, kernel: Tensor) -> Tensor:
    """Return a kernel whose outputs are mixed by a matrix."""
    mixed: Tensor = matrix @ kernel.flatten(1)
    return mixed.reshape(kernel.shape)


def _solve_rows(algebra: StageAlgebra, problem: OutputProblem, order: Tensor) -> Tensor:
    """Return the best kernel of a single stage; its filters in the order of the original's outputs."""
    kernel = torch.zeros_like(problem.plain_target)
    groups = algebra.plan.stages[0].groups
    for values, rows in zip(algebra.values_of_groups(), order.split([group.filters for group in groups]), strict=True):
        kernel[rows] = problem.best_within(values)[rows]
    return kernel.reshape(problem.weight.shape)


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
