"""The result of a budget: the plan, the converted network and its times."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from cruciform.budgets.budget_plan import BudgetPlan
from cruciform.budgets.budget_report import in_units, plan_to_dict, write_plan
from cruciform.budgets.units.unit_seconds import SECONDS
from cruciform.conversion.convert import Conversion
from cruciform.plot.style import check_picture
from cruciform.store.directory import Base, refuse_other_directory, save
from cruciform.store.interface import Interface
from cruciform.text.text_tables import html_table, text_table

BUDGET_COLUMNS = ("layer", "convolution", "becomes", "why", "value", "time / dense")


@dataclass(frozen=True)
class BudgetResult:
    """A network converted under a budget.

    Attributes:
        plan: The scheme of every layer, with the reason for each.
        conversion: The converted network and its conversion table.
        measured_seconds: The time of a batch of the converted network, measured.
        dense_seconds: The same of the dense network, timed in the same rounds.
        about: The network, engine, batch size, threads and input size.
        base: How the dense network is built again.
        interface: Its preprocessing and class names, where they are known.
    """

    plan: BudgetPlan
    conversion: Conversion = field(repr=False)
    measured_seconds: float
    dense_seconds: float
    about: Mapping[str, Any]
    base: Base = field(repr=False)
    interface: Interface = field(repr=False)

    @property
    def model(self) -> nn.Module:
        """The converted network."""
        return self.conversion.model

    @property
    def predicted_seconds(self) -> float:
        """The predicted time of a batch."""
        return self.plan.predicted[SECONDS]

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """What was chosen for every layer, as text."""
        return [
            (one.name, one.convolution, one.scheme, one.reason, f"{one.value:.2f}",
             f"{one.seconds / one.dense_seconds:.2f}")
            for one in self.plan.layers
        ]  # fmt: skip

    @property
    def title(self) -> str:
        """The network and where it runs."""
        return f"{self.about['network']} in {self.about['target']}, batch size {self.about['batch']}"

    @property
    def notes(self) -> list[str]:
        """Budgets, predictions and measurements, one sentence each."""
        plan = self.plan
        budgets = [
            f"{name}: {in_units(name, plan.dense[name])} dense, {in_units(name, limit)} allowed, "
            f"{in_units(name, plan.predicted[name])} predicted"
            for name, limit in plan.budgets.items()
        ]
        measured = (
            f"measured: {in_units(SECONDS, self.measured_seconds)}, interleaved with the dense network's "
            f"{in_units(SECONDS, self.dense_seconds)}; value {plan.value:.3f} of 1 (a proxy)"
        )
        return [*budgets, *plan.problems, measured]

    def save(self, directory: str | Path) -> Path:
        """Write a model directory with ``budget.md``, ``budget.json`` and two plots.

        Train it by naming the directory in a recipe, or read it with ``cruciform.load``.
        """
        directory = Path(directory)
        check_output(directory)
        preprocessing, classes = self.interface
        report = self.conversion.report
        save(self.model, directory, report, base=self.base, preprocessing=preprocessing, classes=classes)
        write_plan(self.plan, dict(self.about), self.measured_seconds, directory)
        return directory

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the network as plain data, for JSON."""
        return plan_to_dict(self.plan, dict(self.about), self.measured_seconds)

    def __str__(self) -> str:
        return "\n".join([self.title, text_table(BUDGET_COLUMNS, self.rows, left=4), *self.notes])

    def _repr_html_(self) -> str:
        """Show it as a table in notebooks."""
        return html_table(BUDGET_COLUMNS, self.rows, left=4, caption=self.title, notes=self.notes)


def check_output(directory: Path) -> None:
    """Raise where a result could not be saved, before the hours that it takes."""
    refuse_other_directory(directory)
    check_picture(directory / "front.png")
