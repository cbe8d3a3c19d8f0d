"""What benchmarks/cifar10.py and the texts say of the published runs is what was tried and what is computed."""

import importlib
import json
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def cifar10(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.delitem(sys.modules, "cifar10", raising=False)
    return importlib.import_module("cifar10")


@pytest.fixture(scope="module")
def trials() -> list[dict[str, Any]]:
    details = json.loads((ROOT / "results" / "cifar10-study.json").read_text("utf-8"))["details"]
    found = [trial for trial in details if trial["recipe"]["model"]["name"] in ("nin", "nin_c3_lr")]
    assert found
    return found


def test_the_rates_that_are_said_to_be_tried_are_those_that_were(
    cifar10: ModuleType, trials: list[dict[str, Any]]
) -> None:
    tried: dict[tuple[str, str], set[float]] = {}
    for trial in trials:
        optimizer = trial["recipe"]["optimiser"]  # as it was recorded
        tried.setdefault((trial["recipe"]["model"]["name"], optimizer["kind"]), set()).add(optimizer["rate"])
    assert {key: set(rates) for key, rates in cifar10.TRIED.items()} == tried


def test_the_text_lists_every_trial_and_says_which_were_not_searched(trials: list[dict[str, Any]]) -> None:
    text = (ROOT / "docs" / "concepts" / "spending.md").read_text("utf-8").partition("### Without norms")[2]
    kinds = {"sgd": "SGD", "adamw": "AdamW"}
    for trial in trials:
        optimizer = trial["recipe"]["optimiser"]  # as it was recorded
        assert f"| `{trial['recipe']['model']['name']}` | {kinds[optimizer['kind']]}, {optimizer['rate']} |" in text
    assert "AdamW was tried at one learning rate for `nin` and at three for `nin_c3_lr`" in text


def test_the_spread_of_a_difference_is_that_of_a_single_pair_and_is_said_to_be(cifar10: ModuleType) -> None:
    dense = {"accuracy": 93.8, "accuracy_std": 0.3, "seeds": 4, "seconds": 100.0}
    low_rank = {"accuracy": 93.3, "accuracy_std": 0.4, "seeds": 4, "seconds": 87.0}
    found = {cifar10.DENSE: dense, cifar10.LOW_RANK: low_rank}
    assert cifar10.compare(found) == {
        "train_time_ratio": 0.87, "lowrank_behind": 0.5, "lowrank_behind_std": math.hypot(0.3, 0.4),
        "lowrank_behind_standard_error": math.hypot(0.3, 0.4) / math.sqrt(4),
    }  # fmt: skip
    (line,) = cifar10.comparisons(found)
    assert line == (
        "cifar_fast_cross is 0.50 ± 0.50 points behind cifar_fast, in 0.87 of the time, over 4 and 4 seeds (±: "
        "standard deviation of the difference between one run of each; standard error of the mean difference: 0.25)"
    )
    (alone,) = cifar10.comparisons({**found, cifar10.DENSE: {**dense, "seeds": 1}})
    assert "±" not in alone


def test_the_recorded_spread_is_what_the_texts_say_it_is() -> None:
    summary = json.loads((ROOT / "results" / "cifar10.json").read_text("utf-8"))["summary"]  # as it was recorded
    for behind, first, second in (("lowrank_behind", "dense", "lowrank"), ("nin_c3_lr_behind", "nin", "nin_c3_lr")):
        spreads = (summary[f"{name}_accuracy_deviation"] for name in (first, second))
        assert summary[f"{behind}_deviation"] == pytest.approx(math.hypot(*spreads), abs=1e-3)
