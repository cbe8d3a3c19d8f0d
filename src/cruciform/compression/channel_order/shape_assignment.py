"""Which output of a layer gets which shape of filter, where a plan has several shapes side by side and no join.

Symbols: ``s`` the values of a patch that a shape reads. An output with this shape is best reproduced by
``v_s = R_s C_ss⁻¹``, which explains ``R_s C_ss⁻¹ R_sᵀ`` of its energy. A shape has as many filters as the plan says:
an assignment problem, solved exactly. Energies are counted by the diagonal of G; what it says of errors of two outputs
together is left out, so a caller with such a metric compares the errors.
"""

import torch

from cruciform.budgets.solving.solver import import_scipy
from cruciform.compression.fitting.output_fit import QuickFit, fit_quickly
from cruciform.compression.fitting.output_problem import OutputProblem
from cruciform.compression.fitting.stage_algebra import StageAlgebra
from cruciform.plan import LayerPlan


def has_shapes_side_by_side(plan: LayerPlan) -> bool:
    """Return whether the order of a plan's outputs decides which shape each gets."""
    return len(plan.stages) == 1 and len({(group.kernel, group.dilation) for group in plan.stages[0].groups}) > 1


def assign_shapes(plan: LayerPlan, problem: OutputProblem) -> list[int]:
    """Return for each filter of a plan the output of the layer that it shall reproduce.

    Outputs that get the same shape stay in their order.

    Args:
        plan: Of one stage; see ``has_shapes_side_by_side``.
        problem: The layer.
    """
    optimize, _ = import_scipy()
    groups = plan.stages[0].groups
    energies = torch.stack([problem.explained_within(values) for values in StageAlgebra(plan).values_of_groups()], 1)
    shapes = torch.repeat_interleave(torch.arange(len(groups)), torch.tensor([group.filters for group in groups]))
    # Of an output all filters of one shape explain the same.
    _, filters = optimize.linear_sum_assignment(energies[:, shapes].numpy(), maximize=True)
    order: list[int] = torch.argsort(shapes[torch.from_numpy(filters)], stable=True).tolist()
    return order


def fit_in_best_order(
    plan: LayerPlan, problem: OutputProblem, *, reorderable: bool
) -> tuple[QuickFit, list[int] | None]:
    """Return a quick fit, and the order of output channels that it takes, where another one than their own is better.

    The assignment takes errors of outputs as independent of each other, which the metric does not: it is compared.

    Args:
        plan: Of the layer.
        problem: The layer.
        reorderable: Whether its output channels may be put into any order.
    """
    fitted = fit_quickly(plan, problem)
    if reorderable and has_shapes_side_by_side(plan):
        order = assign_shapes(plan, problem)
        ordered = fit_quickly(plan, problem, order=order)
        if ordered.error < fitted.error:
            return ordered, order
    return fitted, None
