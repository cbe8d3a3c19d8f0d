"""The σ of the paper, by hand: sqrt(gain² / Σ h·w·d)."""

import math

import pytest

from cruciform.nn.activations import gain_squared
from cruciform.nn.init_rules import RULES, Surroundings
from cruciform.schemes import make_plan
from cruciform.spec import ConvSpec

SPEC = ConvSpec(64, 128, 3, padding=1)


def scales(rule: str, scheme: str, around: Surroundings | None = None) -> list[list[float]]:
    draws = RULES.get(rule)(make_plan(SPEC, scheme), around or Surroundings())
    return [[draw.scale for draw in stage] for stage in draws]


@pytest.mark.parametrize(
    ("rule", "scheme", "variances"),
    [
        ("paper-completed", "full", [[2 / (9 * 128)]]),
        ("paper-completed", "lr", [[2 / (3 * 64 + 3 * 64)] * 2]),
        ("paper-completed", "lr-join", [[1 / 384] * 2, [2 / 128]]),
        ("paper-completed", "sf", [[1 / 384], [2 / 384]]),
        ("paper-completed", "lr-join-wfull", [[1 / (3 * 48 + 3 * 48 + 9 * 32)] * 3, [2 / 128]]),
        ("paper-literal", "lr-join", [[2 / 384] * 2, [2 / 128]]),
        ("per-group", "lr", [[2 / 192] * 2]),
        ("per-group", "lr-join-wfull", [[2 / 144, 2 / 144, 2 / 288], [2 / 128]]),
    ],
)
def test_variances_by_hand(rule: str, scheme: str, variances: list[list[float]]) -> None:
    for stage, expected in zip(scales(rule, scheme), variances, strict=True):
        assert stage == pytest.approx([math.sqrt(v) for v in expected])


def test_pytorch_bounds_are_those_of_conv2d() -> None:
    assert scales("pytorch", "lr-join") == [
        pytest.approx([1 / math.sqrt(3 * 64)] * 2),
        [pytest.approx(1 / math.sqrt(128))],
    ]


def test_siblings_share_their_fan_out() -> None:
    assert scales("paper-completed", "full", Surroundings(fan_out=4 * 1152))[0][0] == pytest.approx(math.sqrt(2 / 4608))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (None, 1.0),
        ("relu", 2.0),
        ("leaky_relu", 2 / (1 + 0.01**2)),
        # ∫ e^{2z} φ over z < 0 is e² Φ(-2), so for the ELU E[f'²] = 1/2 + e² Φ(-2).
        ("elu", 1 / (0.5 + math.exp(2) * 0.5 * math.erfc(2 / math.sqrt(2)))),
    ],
)
def test_gains_by_hand(name: str | None, value: float) -> None:
    assert gain_squared(name) == pytest.approx(value, rel=1e-6)
