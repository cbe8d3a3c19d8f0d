"""Warnings about a replacement: filters that skip most of the input, or cost more than the dense layer."""

from itertools import product
from math import prod

from cruciform.plan import LayerPlan, phases

LEAST_READ = 0.5
"""The fraction of input positions read below which there is a warning."""


def objection(plan: LayerPlan, before: int, after: int) -> str:
    """Return a warning about a plan, mostly none.

    Args:
        plan: What is to replace a convolution.
        before: What that costs: multiply-accumulates, or parameters where those are not counted.
        after: What the plan costs.
    """
    found = [_blindness(plan), _skipping(plan)]
    if after > before:
        found.append(f"it costs {after / max(1, before):.1f} times as much as the dense layer")
    reasons = "; ".join(filter(None, found))
    return f"{reasons}; protect it to keep it dense" if reasons else ""


def _blindness(plan: LayerPlan) -> str:
    """Return the axes along which no filter extends, as with too few filters for all shapes."""
    blind = [
        axis
        for axis, extent in enumerate(plan.spec.kernel)
        if extent > 1 and all(group.kernel[axis] == 1 for stage in plan.stages for group in stage.groups)
    ]
    axes = " or ".join(map(str, blind))
    return f"none of its {plan.spec.out_channels} filters extends along axis {axes}" if blind else ""


def _skipping(plan: LayerPlan) -> str:
    """Return a warning if a large stride leaves most of the input unread: a cross in a 16×16 patch reads an eighth."""
    window = prod(
        min(step, extent) for step, extent in zip(plan.spec.stride, plan.spec.kernel, strict=True)
    )  # what the window reads of each step
    share = prod(_read_by(plan, stage) for stage in range(len(plan.stages))) / window
    return (
        f"because of its stride it reads only {share:.0%} of the input that the dense layer read"
        if share < LEAST_READ
        else ""
    )


def _read_by(plan: LayerPlan, stage: int) -> int:
    """Return how many of the positions within one step of a stage any of its filters reads."""
    spec = plan.stage_spec(stage)
    positions: set[tuple[int, ...]] = set()
    for group in plan.stages[stage].groups:
        positions.update(product(*(phases(spec, group, axis) for axis in range(spec.rank))))
    return len(positions)
