"""Parameters."""

from cruciform.budgets.units.cost_unit import COST_UNITS, CostUnit

PARAMS = "parameters"

COST_UNITS.add(
    "params",
    CostUnit(
        name=PARAMS,
        option="params",
        of_layer=lambda plan, run: plan.params,
        of_network=lambda run: float(run.counted.params),
        suffixes={"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9},
        examples="50% or 5M",
        factor=1e-6,
        symbol="million",
    ),
)
