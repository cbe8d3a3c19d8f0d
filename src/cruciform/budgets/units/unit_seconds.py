"""Time of one batch, measured in the engine."""

from cruciform.budgets.units.cost_unit import COST_UNITS, CostUnit

SECONDS = "seconds"

COST_UNITS.add(
    "time",
    CostUnit(
        name=SECONDS,
        option="time",
        of_layer=lambda plan, run: run.seconds or 0.0,
        of_network=lambda run: run.seconds or 0.0,
        suffixes={"ms": 1e-3, "s": 1.0},
        examples="60% or 12ms",
        factor=1e3,
        symbol="ms",
        measured=True,
    ),
)
