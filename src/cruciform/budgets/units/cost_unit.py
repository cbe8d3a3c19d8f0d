"""Cost units: what a budget can limit, such as time, MACs or parameters.

To add one, put a file beside this one that calls ``COST_UNITS.add(unit.option, unit)``. Another package adds one by an
entry point of the group ``cruciform.cost_units``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cruciform.amounts import read_amount
from cruciform.errors import OptionError
from cruciform.measure.network_profile import Profile
from cruciform.plan import LayerPlan
from cruciform.registry import Registry

PERCENT = "%"
WHOLE = 1000  # amounts from here on are printed without decimals


@dataclass(frozen=True)
class Limit:
    """A limit of a cost: an amount, or a fraction of the dense network's cost.

    Attributes:
        amount: The amount or fraction.
        relative: Whether it is a fraction.
    """

    amount: float
    relative: bool = False


@dataclass(frozen=True)
class LayerRun:
    """How a layer runs in its network.

    Attributes:
        calls: Batch and spatial size of the input of each call, for one image.
        seconds: Its time in the engine, over all calls; None before it is measured.
    """

    calls: Sequence[Sequence[int]]
    seconds: float | None = None


@dataclass(frozen=True)
class NetworkRun:
    """How the dense network runs.

    Attributes:
        counted: Its MACs and parameters, layer by layer.
        seconds: Its time in the engine; None before it is measured.
    """

    counted: Profile
    seconds: float | None = None


@dataclass(frozen=True)
class CostUnit:
    """Something that a budget can limit.

    Attributes:
        name: Its name in reports and JSON, such as ``parameters``.
        option: Its short name in calls and on the command line, such as ``params``.
        of_layer: Returns the cost of a layer that runs a plan.
        of_network: Returns the cost of the dense network.
        suffixes: The factor of each suffix that an amount can have; ``%`` for a fraction of the dense network.
        examples: Two amounts, for help texts and errors.
        factor: Multiplies an amount before it is printed.
        symbol: Printed after it.
        measured: Whether it is derived from times in the engine, and so unknown before these are measured.
    """

    name: str
    option: str
    of_layer: Callable[[LayerPlan, LayerRun], float]
    of_network: Callable[[NetworkRun], float]
    suffixes: Mapping[str, float]
    examples: str
    factor: float
    symbol: str
    measured: bool = False

    def parse(self, text: str) -> Limit:
        """Parse a limit, such as ``60%``."""
        suffixes = {PERCENT: 0.01, **self.suffixes}
        amount, unit = read_amount(text, suffixes, f"budget of {self.name}; write {self.examples}")
        return Limit(amount, relative=unit == PERCENT)

    def format(self, amount: float) -> str:
        """Format an amount for people."""
        shown = self.factor * amount
        return f"{shown:,.3g} {self.symbol}" if shown < WHOLE else f"{shown:,.0f} {self.symbol}"


COST_UNITS: Registry[CostUnit] = Registry("cost unit", package="cruciform.budgets.units", group="cruciform.cost_units")


def find_unit(name: str) -> CostUnit:
    """Return a cost unit by its short name or the name it has in reports."""
    by_name = {unit.name: unit for unit in all_units()}
    return by_name[name] if name in by_name else COST_UNITS.get(name)


def all_units() -> list[CostUnit]:
    """Return all cost units, measured ones first."""
    return sorted((unit for _, unit in COST_UNITS.items()), key=lambda unit: not unit.measured)


def read_limits(given: Mapping[str, str | Limit]) -> dict[str, Limit]:
    """Parse limits by cost unit; return them by the units' names in reports."""
    if not given:
        raise OptionError(f"no budget is given; limit one of {', '.join(COST_UNITS.names())}, for instance time to 60%")
    limits: dict[str, Limit] = {}
    for name, limit in given.items():
        unit = find_unit(name)
        limits[unit.name] = limit if isinstance(limit, Limit) else unit.parse(limit)
    return limits
