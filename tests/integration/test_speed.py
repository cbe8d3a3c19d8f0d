"""Plan arithmetic must be quick enough for a planner: 20,000 plans a second on one core."""

import importlib.util
from pathlib import Path

import pytest


@pytest.mark.slow
def test_twenty_thousand_plans_a_second() -> None:
    path = Path(__file__).parents[2] / "benchmarks" / "plan_arithmetic.py"
    spec = importlib.util.spec_from_file_location("plan_arithmetic", path)
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    assert max(bench.plans_per_second(rounds=20)) > 20_000
