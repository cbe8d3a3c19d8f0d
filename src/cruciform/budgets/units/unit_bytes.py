"""Size of the weights in float32."""

from cruciform.budgets.units.cost_unit import COST_UNITS, CostUnit

BYTES = "bytes"
FLOAT32 = 4  # bytes of a weight

COST_UNITS.add(
    "bytes",
    CostUnit(
        name=BYTES,
        option="bytes",
        of_layer=lambda plan, run: FLOAT32 * plan.params,
        of_network=lambda run: float(FLOAT32 * run.counted.params),
        suffixes={"B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9},
        examples="50% or 8MB",
        factor=1e-6,
        symbol="MB",
    ),
)
