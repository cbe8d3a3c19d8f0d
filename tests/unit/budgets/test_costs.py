"""Costs: measured once, in surroundings, in an engine."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from cruciform.budgets import costs
from cruciform.budgets.costs import CostTable, Kind, LayerCost, describe, measure_kind, surrounded
from cruciform.budgets.surroundings import Pooling, find_poolings
from cruciform.deployment.search.build import Build, EngineSettings
from cruciform.deployment.search.clock import Timing
from cruciform.deployment.targets.target import TARGETS
from cruciform.errors import DeployError
from cruciform.schemes import make_plan
from cruciform.spec import ConvSpec

KIND = Kind(ConvSpec(16, 16, 3, padding=1), (16, 20, 20))


@pytest.fixture
def setting() -> EngineSettings:
    return EngineSettings(TARGETS.get("onnxruntime"), (3, 32, 32), rounds=3)


@pytest.mark.slow
def test_costs_are_measured_once_and_kept(
    setting: EngineSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = measure_kind(KIND, ["lr", "lr-join"], setting, tmp_path)
    assert list(first.costs) == ["full", "lr", "lr-join"]
    assert all(0 < cost.seconds < 1 for cost in first.costs.values())
    assert first.costs["lr"].form in ("tail", "split")

    def measured_again(*words: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(costs, "_measure", measured_again)
    assert measure_kind(KIND, ["lr-join", "lr"], setting, tmp_path).costs["lr"] == first.costs["lr"]
    with pytest.raises(AssertionError, match="measured again"):
        measure_kind(KIND, ["lr"], replace(setting, batch=4), tmp_path)


def test_times_are_known_for_one_engine_and_so_many_rounds(
    setting: EngineSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[tuple[int, bool]] = []

    def measure(kind: Kind, schemes: list[str], setting: EngineSettings, on_progress: object) -> CostTable:
        measured.append((setting.rounds, vars(setting.target).get("_compiled", False)))
        return CostTable({scheme: LayerCost(1.0, "") for scheme in schemes}, {}, 1.0)

    monkeypatch.setattr(costs, "_measure", measure)
    plain, compiled = (replace(setting, target=TARGETS.get(name)) for name in ("torch", "torch-compile"))
    for asked in (plain, plain, compiled, replace(plain, rounds=9), replace(plain, rounds=5)):
        measure_kind(KIND, ["lr"], asked, tmp_path)
    assert measured == [(3, False), (3, True), (9, False)]
    for path in tmp_path.glob("*.json"):
        path.write_text("{")
    measure_kind(KIND, ["lr"], plain, tmp_path)
    assert len(measured) == 4


@pytest.mark.slow
def test_more_candidates_are_measured_beside_the_dense_layer(setting: EngineSettings, tmp_path: Path) -> None:
    first = measure_kind(KIND, ["lr"], setting, tmp_path)
    more = measure_kind(KIND, ["lr", "sf"], setting, tmp_path)
    assert more.costs["lr"] == first.costs["lr"]
    assert set(more.costs) == {"full", "lr", "sf"}


@pytest.mark.slow
def test_what_an_engine_can_not_run_is_left_out_with_the_reason(
    setting: EngineSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = {"tail", "split"}

    def build(network: object, build: Build, *words: object) -> str:
        form = next(iter(build.forms.values()), "")
        if form in failing:
            raise DeployError(f"no {form} here")
        return form

    monkeypatch.setattr(costs, "build_engine", build)
    monkeypatch.setattr(
        costs, "time_engines", lambda engines, *words, **more: {name: Timing((1.0,)) for name in engines}
    )
    found = measure_kind(KIND, ["lr"], setting, tmp_path)
    assert (set(found.costs), found.problems) == ({"full"}, {"lr": "no split here"})
    assert measure_kind(KIND, ["lr"], setting, tmp_path) == found, "that is remembered too"
    failing.add("")
    with pytest.raises(DeployError, match="3×3, 16 → 16 of 20×20 does not run in this engine"):
        measure_kind(KIND, ["lr"], setting, tmp_path / "again")


def test_a_full_disk_is_not_remembered_of_a_layer(
    setting: EngineSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(*words: object) -> str:
        raise DeployError("no space left") from OSError(28, "no space left")

    monkeypatch.setattr(costs, "build_engine", build)
    with pytest.raises(DeployError, match=r"^no space left$"):
        measure_kind(KIND, ["lr"], setting, tmp_path)
    assert not list(tmp_path.iterdir())


def test_layers_are_timed_on_as_many_maps_as_an_image_becomes(
    setting: EngineSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frames that are folded into the batch: a saving counts for each of them."""
    batches: set[tuple[int, int]] = set()

    def build(network: object, build: Build, there: EngineSettings, *words: object) -> str:
        batches.add((there.batch, 0))
        return ""

    def time(engines: dict[str, str], images: np.ndarray, **more: object) -> dict[str, Timing]:  # type: ignore[type-arg]
        batches.add((0, len(images)))
        return {name: Timing((1.0,)) for name in engines}

    monkeypatch.setattr(costs, "build_engine", build)
    monkeypatch.setattr(costs, "time_engines", time)
    folded = replace(KIND, maps=16)
    measure_kind(folded, ["lr"], replace(setting, batch=2), tmp_path)
    assert batches == {(32, 0), (0, 32)}
    assert str(describe(folded)["convolution"]).endswith(", 16 per image")
    assert "maps" not in describe(KIND), "times that were kept are still found"


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_layer_stands_between_convolutions(rank: int) -> None:
    spec = ConvSpec(16, 8, (3,) * rank, padding=1)
    assert surrounded(make_plan(spec, "lr"))(torch.zeros(1, 16, *(5,) * rank)).shape[1] == costs.READER
    image = ConvSpec(3, 8, (3,) * rank, padding=1)
    assert len(surrounded(make_plan(image, "lr"))) == 3, "the first layer reads the image itself"


@pytest.mark.slow
def test_the_pooling_behind_a_layer_is_timed_with_it() -> None:
    """Left out, a layer in front of a pooling looks dearer than it is: pooled before, its groups are quickly joined."""
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1),
        nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 1), nn.Sigmoid(), nn.MaxPool2d(2),
    )  # fmt: skip
    assert find_poolings(network, (3, 24, 24)) == {
        "0": Pooling((3, 3), (2, 2), (1, 1)),
        "6": Pooling((2, 2), (2, 2), (0, 0)),
    }
    layer = surrounded(make_plan(ConvSpec(16, 16, 3, padding=1), "lr"), Pooling((2, 2), (2, 2), (0, 0)))
    assert layer(torch.zeros(1, 16, 8, 8)).shape[2:] == (4, 4)


def test_kinds_that_are_pooled_differ_from_those_that_are_not() -> None:
    pooled = replace(KIND, pooling=Pooling((2, 2), (2, 2), (0, 0)))
    assert describe(pooled) != describe(KIND)
    assert str(describe(pooled)["convolution"]).endswith("pooled 2×2")


def test_times_of_a_slower_run_are_put_on_the_scale_of_this_one() -> None:
    measured = CostTable({"full": LayerCost(3.0, ""), "lr": LayerCost(1.5, "tail")}, {}, yardstick=2.0)
    assert measured.at(1.0).costs == {"full": LayerCost(1.5, ""), "lr": LayerCost(0.75, "tail")}
    assert measured.at(None) is measured
    unknown = CostTable(measured.costs, {})
    assert unknown.at(1.0) is unknown
