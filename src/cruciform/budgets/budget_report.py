"""Write a budget plan as Markdown, JSON and plots into a model directory."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from cruciform.budgets.budget_plan import BudgetPlan
from cruciform.budgets.units.cost_unit import find_unit
from cruciform.budgets.units.unit_seconds import SECONDS
from cruciform.files import write_json
from cruciform.measure.record import circumstances, hardware, versions
from cruciform.plot.budget import draw_front, draw_layers

PROXY = "It is a proxy: the fraction of the kernel's energy that each plan keeps. It does not predict accuracy."
HEADER = ("| layer | convolution | becomes | value | time / dense | why |", "|---|---|---|---|---|---|")


def in_units(name: str, value: float) -> str:
    """Format a cost for people."""
    return find_unit(name).format(value)


def plan_to_dict(plan: BudgetPlan, about: dict[str, Any], measured: float | None) -> dict[str, Any]:
    """Return a plan as plain data, for JSON."""
    return {
        **about,
        **asdict(plan),
        "mapping": plan.mapping,
        "measured_seconds": measured,
        "versions": versions(),
        "hardware": hardware(),
    }


def plan_to_markdown(plan: BudgetPlan, about: dict[str, Any], measured: float | None) -> str:
    """Return a plan as a Markdown report."""
    lines = [
        f"# {about['network']} in {about['target']}, batch size {about['batch']}",
        "",
        "| | dense | budget | predicted |",
        "|---|---|---|---|",
    ]
    for name, value in plan.dense.items():
        limit = in_units(name, plan.budgets[name]) if name in plan.budgets else "–"
        expected = f"{in_units(name, plan.predicted[name])} ({plan.predicted[name] / value:.0%})"
        lines.append(f"| {name} | {in_units(name, value)} | {limit} | {expected} |")
    if measured is not None:
        error = plan.predicted[SECONDS] / measured - 1
        lines += ["", f"Measured: {in_units(SECONDS, measured)}; the prediction is off by {error:+.1%}."]
    lines += ["", f"Value: {plan.value:.3f} of the dense network's 1. {PROXY}", "", *HEADER]
    lines += [
        f"| `{layer.name}` | {layer.convolution} | {layer.scheme} | {layer.value:.2f} | "
        f"{layer.seconds / layer.dense_seconds:.2f} | {layer.reason} |"
        for layer in plan.layers
    ]
    lines += ["", *(f"- {problem}" for problem in plan.problems)]
    lines += ["", "![Pareto front](front.png)", "", "![layers](layers.png)", "", circumstances()]
    return "\n".join(lines) + "\n"


def write_plan(plan: BudgetPlan, about: dict[str, Any], measured: float | None, folder: Path) -> None:
    """Write ``budget.md``, ``budget.json``, ``front.png`` and ``layers.png``."""
    (folder / "budget.md").write_text(plan_to_markdown(plan, about, measured), "utf-8")
    write_json(folder / "budget.json", plan_to_dict(plan, about, measured))
    name, limit = next(iter(plan.budgets.items()))
    unit = find_unit(name)
    factor = unit.factor
    draw_front(
        [(factor * cost, value) for cost, value in plan.front],
        (factor * plan.predicted[name], plan.value),
        factor * limit,
        folder / "front.png",
        unit=unit.symbol,
    )
    draw_layers(
        [(one.name, one.scheme, 1e3 * one.dense_seconds, 1e3 * one.seconds) for one in plan.layers],
        folder / "layers.png",
    )
