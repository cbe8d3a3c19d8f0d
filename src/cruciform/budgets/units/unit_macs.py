"""Multiply-accumulates of one image."""

from cruciform.budgets.units.cost_unit import COST_UNITS, CostUnit, LayerRun
from cruciform.plan import LayerPlan

MACS = "MACs"


def layer_macs(plan: LayerPlan, run: LayerRun) -> float:
    """Return the MACs of a layer over all of its calls."""
    return sum(batch * plan.macs_from_input(tuple(size)) for batch, *size in run.calls)


COST_UNITS.add(
    "macs",
    CostUnit(
        name=MACS,
        option="macs",
        of_layer=layer_macs,
        of_network=lambda run: float(run.counted.macs),
        suffixes={"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9},
        examples="50% or 500M",
        factor=1e-6,
        symbol="MMAC",
    ),
)
