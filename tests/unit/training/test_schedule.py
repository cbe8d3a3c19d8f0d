"""Rates against their formulas, worked out by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruciform.training.recipe.schedule import (
    Constant,
    Cosine,
    Curve,
    Inverse,
    Moment,
    MultiStep,
    OneCycle,
    Plateau,
    PlateauState,
    Poly,
)

CURVES: list[Curve] = [
    Constant(), Inverse(decay=5e-4), MultiStep(milestones=(0.5, 0.75)), Poly(power=0.5), Cosine(warmup_epochs=2),
    OneCycle(),
]  # fmt: skip


def at(step: int, steps: int = 1000, per_epoch: int = 100, rate: float = 0.01) -> Moment:
    return Moment(step, steps, per_epoch, rate)


def test_the_papers_schedule() -> None:
    # γ₀ = 1e-2, λ = 5e-4: Caffe's policy "inv" with gamma = 5e-6 and power 1.
    curve = Inverse(decay=5e-4)
    assert curve.factor(at(0)) == 1
    assert curve.factor(at(370_000)) == pytest.approx(1 / (1 + 5e-6 * 370_000))


def test_caffes_poly() -> None:
    assert Poly(power=0.5).factor(at(750)) == pytest.approx(0.5)


def test_steps() -> None:
    curve = MultiStep(milestones=(0.5, 0.75), gamma=0.1)
    assert [curve.factor(at(step)) for step in (499, 500, 750)] == pytest.approx([1, 0.1, 0.01])


def test_cosine_rises_then_falls_to_its_end() -> None:
    curve = Cosine(warmup_epochs=1, end_factor=0.1)
    assert curve.factor(at(0)) == pytest.approx(1 / 101)
    assert curve.factor(at(99)) == pytest.approx(100 / 101)
    assert curve.factor(at(100)) == pytest.approx(1)
    assert curve.factor(at(550)) == pytest.approx(0.1 + 0.9 * (1 + math.cos(math.pi / 2)) / 2)


def test_one_cycle_is_two_straight_lines() -> None:
    curve = OneCycle(start_factor=0.2, pct_start=0.25, end_factor=0.0)
    assert [curve.factor(at(step)) for step in (0, 125, 250, 625)] == pytest.approx([0.2, 0.6, 1, 0.5])


@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.kind)
@given(step=st.integers(0, 999))
def test_factors_stay_between_nothing_and_the_whole_rate(curve: Curve, step: int) -> None:
    assert 0 <= curve.factor(at(step)) <= 1


def test_a_plateau_reduces_after_its_patience_and_not_more_often_than_it_may() -> None:
    plateau, state = Plateau(patience=2, threshold=0.01, max_reductions=2), PlateauState()
    rates = []
    for accuracy in (0.5, 0.6, 0.605, 0.601, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7):
        state.update(accuracy, plateau)
        rates.append(state.reductions)
    assert rates == [0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2]
    curve = Inverse(decay=5e-4, plateau=plateau)
    assert curve.lr_factor(at(0), state) == pytest.approx(0.01)
