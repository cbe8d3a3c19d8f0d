"""Choose within a time that is measured on the whole network.

The solver adds up the times of layers that were timed one by one; the network that it chooses may take more than their
sum, or less. So the chosen network is timed, and the time that is asked of the solver corrected until the measured one
is what was wanted.
"""

import math
from collections.abc import Callable, Mapping

from cruciform.budgets.budget_plan import BudgetPlan, choose
from cruciform.budgets.plan_clock import MeasuredPlan
from cruciform.budgets.solving.solver import SLACK, least_cost, not_met
from cruciform.budgets.survey import Survey
from cruciform.budgets.units.cost_unit import Limit
from cruciform.budgets.units.unit_seconds import SECONDS

ATTEMPTS = 6
CLOSE = 0.02
"""A measured time this near to the wanted one, as a fraction, is near enough."""


def choose_measured(
    survey: Survey, limits: Mapping[str, Limit], measure: Callable[[BudgetPlan], MeasuredPlan]
) -> MeasuredPlan:
    """Choose the best schemes of a surveyed network, and measure it; with a limit on time, choose until it is kept.

    Args:
        survey: The options of every layer.
        limits: By cost unit.
        measure: Times the network of a plan.

    Returns:
        The slowest plan within the limit; where noise lets none keep it, the fastest, slightly above.

    Raises:
        BudgetError: The budget can't be met: even the cheapest choice, measured, is too slow.
    """
    if SECONDS not in limits:
        return measure(choose(survey, limits))
    dense, limit = survey.dense[SECONDS], limits[SECONDS]
    wanted = limit.amount if limit.relative else limit.amount / dense
    least = least_cost(survey.layers, SECONDS, fixed=survey.dense) / dense * (1 + SLACK)
    asked, low, high = max(wanted, least), 0.0, math.inf
    tried: dict[frozenset[tuple[str, str]], MeasuredPlan] = {}
    for _ in range(ATTEMPTS):
        plan = choose(survey, {**limits, SECONDS: Limit(asked * dense, relative=False)})
        schemes = frozenset(plan.mapping.items())
        found = tried[schemes] = tried.get(schemes) or measure(plan)
        if wanted * (1 - CLOSE) <= found.share <= wanted:
            break
        if found.share > wanted and asked == least:
            break  # nothing is cheaper
        if found.share <= wanted:
            low = max(low, asked)
        else:
            asked = plan.predicted[SECONDS] / dense  # with any more than that, it would be chosen again
            high = min(high, asked)
        guess = asked * (1 - CLOSE / 4) * wanted / found.share
        # Times are noisy: never out of what is known.
        asked = max(least, guess if low < guess < high else (low + high) / 2)
    within = [one for one in tried.values() if one.share <= wanted]
    if within:
        return max(within, key=lambda one: one.share)
    fastest = min(tried.values(), key=lambda one: one.share)
    if asked == least and fastest.share > wanted * (1 + CLOSE):
        raise not_met(SECONDS, wanted * dense, fastest.share * dense)
    return fastest
