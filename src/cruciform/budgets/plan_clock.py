"""Time the network of a plan beside the dense one."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from torch import nn

from cruciform.budgets.budget_plan import BudgetPlan
from cruciform.budgets.network_time import DENSE_NETWORK, time_network
from cruciform.budgets.units.unit_seconds import SECONDS
from cruciform.conversion.convert import convert
from cruciform.deployment.search.build import EngineSettings
from cruciform.deployment.search.choose import ProgressCallback
from cruciform.deployment.search.clock import LEAST_SECONDS
from cruciform.measure.state_guard import in_mode
from cruciform.schemes import DENSE

if TYPE_CHECKING:
    from cruciform.deployment.targets.target import Engine

LONG = 1.0
"""Seconds that networks are timed for, at least: a choice hangs on each per cent of their times."""


@dataclass(frozen=True)
class MeasuredPlan:
    """A plan whose network was timed.

    Attributes:
        plan: What was chosen.
        seconds: The measured time of a batch.
        dense_seconds: The same of the dense network, timed in the same rounds.
    """

    plan: BudgetPlan
    seconds: float
    dense_seconds: float

    @property
    def share(self) -> float:
        """The time as a fraction of the dense network's."""
        return self.seconds / self.dense_seconds


class PlanClock:
    """Times networks of plans for one dense network, whose engines are built once.

    Args:
        model: The dense network.
        setting: The engine, batch size and threads.
        on_progress: Called with what is being measured.
    """

    def __init__(
        self, model: nn.Module, setting: EngineSettings, on_progress: ProgressCallback = lambda what: None
    ) -> None:
        self._model, self._setting, self._on_progress = model, setting, on_progress
        self._engines: dict[str, Engine] = {}

    def __call__(self, plan: BudgetPlan) -> MeasuredPlan:
        """Time a plan's network; weights do not matter for that."""
        self._on_progress("the chosen network beside the dense one")
        with in_mode(self._model, training=False):
            chosen = convert(
                self._model, plan.mapping or DENSE, init="auto", input_size=self._setting.input_size
            ).model.eval()
            networks = {DENSE_NETWORK: (self._model, {}), "chosen": (chosen, plan.forms)}
            rounds = max(self._setting.rounds, round(LONG / max(LEAST_SECONDS, plan.dense[SECONDS])))
            times = time_network(networks, replace(self._setting, rounds=rounds), kept=self._engines)
        return MeasuredPlan(plan, times["chosen"].best, times[DENSE_NETWORK].best)
