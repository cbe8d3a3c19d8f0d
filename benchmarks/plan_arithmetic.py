"""How many plans a second one core makes and counts: a planner must compare thousands.

Each plan is made from a convolution by a scheme and asked for its parameters, multiply-accumulates and the fans of
all its stages. The best of some rounds of CPU time counts.

    python benchmarks/plan_arithmetic.py        writes results/plan-arithmetic.json
"""

import statistics
import time
from pathlib import Path

from cruciform.measure.record import record_result
from cruciform.schemes import SCHEMES
from cruciform.spec import ConvSpec

ROUNDS = 10
RESULT = Path(__file__).parents[1] / "results" / "plan-arithmetic.json"


def make_and_count(specs: list[ConvSpec]) -> int:
    made = 0
    for scheme in map(SCHEMES.get, SCHEMES.names()):
        for spec in specs:
            plan = scheme(spec)
            _ = plan.params, plan.macs((28, 28))
            for stage in range(len(plan.stages)):
                _ = plan.weights(stage), plan.fan_out(stage)
            made += 1
    return made


def plans_per_second(rounds: int) -> list[float]:
    specs = [ConvSpec(c, d, 3, padding=1) for c in range(16, 216, 4) for d in range(16, 216, 10)]
    rates = []
    for _ in range(rounds):
        start = time.process_time()
        made = make_and_count(specs)
        rates.append(made / (time.process_time() - start))
    return rates


def main() -> None:
    rates = plans_per_second(ROUNDS)
    record_result(
        RESULT,
        summary={"plans_per_second": round(max(rates)), "plans_per_second_median": round(statistics.median(rates))},
        details={"plans_per_second_by_round": [round(rate) for rate in rates]},
        command="python benchmarks/plan_arithmetic.py",
        n=ROUNDS,
    )
    print(f"{max(rates):,.0f} plans a second (best of {ROUNDS} rounds), median {statistics.median(rates):,.0f}")


if __name__ == "__main__":
    main()
