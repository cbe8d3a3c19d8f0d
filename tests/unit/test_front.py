"""The front of accuracy over measured time: which runs, in which order, and what is concluded from them."""

import argparse
import importlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from cruciform.measure.record import record_result
from cruciform.training.experiments.race import Finish
from cruciform.training.run.lock import hold

ROOT = Path(__file__).parents[2]
TINY, CIFAR = "tinyimagenet100", "cifar10"
PART = "onnxruntime_ms_b1"
Modules = Callable[[str], ModuleType]


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Modules:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module


@pytest.fixture
def front(benchmark: Modules, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = benchmark("front")
    monkeypatch.setattr(module, "RESULT", tmp_path / "results" / "front.json")
    return module


def finish(name: str, seed: int, percent: float) -> Finish:
    recipe = {"model": {"name": "cifar_fast"}, "epochs": 6, "batch_size": 1000, "optimizer": {"kind": "sgd"}}
    curve = [{"epoch": 6, "seconds": 999.0, "top1": percent / 100 - 0.01, "top1_flip_tta": percent / 100}]
    return Finish(name, seed, 59_000_000, 9, 50_000, recipe, curve, {}, {"processor": "a processor"})


def runs(accuracies: Mapping[str, Sequence[float]], data_set: str = TINY) -> list[Finish]:
    return [
        finish(f"{data_set}_{name}", seed, one) for name, each in accuracies.items() for seed, one in enumerate(each)
    ]


def timed(**milliseconds: float) -> dict[str, Any]:
    return {"networks": {name: {"milliseconds": one} for name, one in milliseconds.items()}}


# 4 is halfway from 2 to 8 in the logarithm of time. Each std is 1 and each standard error 1/√n.
ACCURACIES = {
    "dense_75": (60.0, 61.0, 62.0),
    "dense_50": (50.0, 51.0, 52.0),
    "cross_50": (57.0, 58.0, 59.0),
    "cross_warm_50": (58.5, 59.5, 60.5),
    "grouped_2_50": (62.0, 63.0, 64.0),
    "separable_50": (69.0, 70.0, 71.0),
}
TIMES = {
    PART: timed(dense_100=16.0, dense_75=8.0, dense_50=2.0, cross_50=4.0, grouped_2_50=3.0, separable_50=5.0),
    "openvino_ms_b16": timed(cross_50=33.0),
}


def summary_of(benchmark: Modules, *given: Any) -> dict[str, float]:
    return dict(benchmark("front_summary").summarize_front(*given))


def test_at_equal_time_accuracy_is_interpolated_in_the_logarithm(benchmark: Modules) -> None:
    summary = summary_of(benchmark, runs(ACCURACIES), TIMES)
    assert summary["ahead_of_narrow_100"] == pytest.approx(58 - 56)
    assert summary["warm_ahead_of_narrow_100"] == pytest.approx(59.5 - 56)
    # Our 1/√3, and half of each neighbor's: √(1/3 + 1/12 + 1/12) = √(1/2).
    assert summary["ahead_of_narrow_100_standard_error"] == round(math.sqrt(1 / 2), 3)


def test_a_quarter_of_the_way_has_a_quarter_of_the_difference_and_its_own_error(benchmark: Modules) -> None:
    points, runs_ = benchmark("front_points"), benchmark("front_runs")
    small, large = runs_.NARROW, replace(runs_.NARROW, fraction=0.75)
    line = [
        points.FrontPoint(small, 1.0, points.Estimate(50.0, 0.4)),
        points.FrontPoint(large, 16.0, points.Estimate(58.0, 0.8)),
    ]
    found = points.interpolate(line, 2.0)
    assert found.value == pytest.approx(52)
    assert found.standard_error == pytest.approx(math.hypot(0.75 * 0.4, 0.25 * 0.8))
    assert points.interpolate(line, 16.0) == line[1].accuracy, "at a network's own time the other one does not count"
    assert points.interpolate(line, 0.99) is None
    assert points.interpolate(line, 16.1) is None, "nothing is extrapolated"
    assert points.reach(line, 16.1) == line[1].accuracy, "within more time, the slowest network is available"
    assert points.reach(line, 0.99) is None


def test_the_best_rival_is_the_best_within_the_time_of_our_best(benchmark: Modules) -> None:
    summary = summary_of(benchmark, runs(ACCURACIES), TIMES)
    assert summary["best_ours_ms"] == 4.0, "a warm-started network has the time of the same layers"
    assert summary["best_ours_accuracy"] == pytest.approx(59.5)
    # dense: 56, interpolated; 2 groups: 63, faster; separable: 70, too slow.
    assert summary["best_rival_same_ms_accuracy"] == pytest.approx(63)
    assert summary["best_rival_same_ms_accuracy_standard_error"] == round(1 / math.sqrt(3), 3)


def test_the_gain_of_a_warm_start_needs_no_times(benchmark: Modules) -> None:
    summary = summary_of(benchmark, [*runs(ACCURACIES), *runs(ACCURACIES, CIFAR)], {})
    assert summary["warm_start_gain"] == summary["warm_start_gain_10"] == pytest.approx(1.5)
    assert summary["warm_start_gain_standard_error"] == round(math.sqrt(2 / 3), 3)
    assert not [key for key in summary if "ahead" in key or "best" in key or "_ms" in key]


@pytest.mark.parametrize("without", ["dense_50", "dense_75", "cross_50"])
def test_a_key_whose_data_is_missing_is_left_out(without: str, benchmark: Modules) -> None:
    some = {name: each for name, each in ACCURACIES.items() if name != without}
    assert "ahead_of_narrow_100" not in summary_of(benchmark, runs(some), TIMES)
    untimed = {PART: {"networks": {name: one for name, one in TIMES[PART]["networks"].items() if name != without}}}
    assert "ahead_of_narrow_100" not in summary_of(benchmark, runs(ACCURACIES), untimed)
    assert "ahead_of_narrow_10" not in summary_of(benchmark, runs(ACCURACIES), TIMES), "no runs on 10 classes"


def test_single_runs_have_no_standard_error(benchmark: Modules) -> None:
    summary = summary_of(benchmark, runs({**ACCURACIES, "dense_75": (61.0,)}), TIMES)
    assert summary["ahead_of_narrow_100"] == pytest.approx(2)
    assert "ahead_of_narrow_100_standard_error" not in summary
    assert "warm_start_gain_standard_error" in summary


def test_a_network_has_its_accuracy_size_and_times(benchmark: Modules) -> None:
    training = {"networks": {
        "cross_50": {"seconds": [2.5, 2.0]},
        "cross_warm_50": {"seconds": [4.0, 5.0], "fit_seconds": 30.0, "dense_until": 0.3},
    }}  # fmt: skip
    summary = summary_of(benchmark, runs(ACCURACIES), {**TIMES, "training": training})
    wanted = {
        "accuracy": 59.5, "plain_accuracy": 58.5, "accuracy_std": 1.0, "seeds": 3, "mmacs": 59.0, "epochs": 6,
        PART: 4.0, "openvino_ms_b16": 33.0, "train_seconds": 300 * (0.3 * 4 + 0.7 * 2) + 30,
    }  # fmt: skip
    assert {key: summary[f"{TINY}_cross_warm_50_{key}"] for key in wanted} == pytest.approx(wanted)
    assert summary[f"{TINY}_cross_50_train_seconds"] == pytest.approx(300 * 2)
    assert f"{TINY}_dense_50_train_seconds" not in summary


def test_every_network_is_compared_with_the_cross_at_its_own_time(benchmark: Modules, front: ModuleType) -> None:
    slower = {**ACCURACIES, "cross_75": (66.0, 67.0, 68.0)}
    times = {PART: timed(**{name: one["milliseconds"] for name, one in TIMES[PART]["networks"].items()}, cross_75=16.0)}
    found = front.conclude(runs(slower), times)[TINY]
    rows = {(row["line"], row["fraction"]): row for row in found["at_equal_time"]}
    assert "cross" not in {line for line, _ in rows}
    assert rows["dense", 0.75]["points"] == pytest.approx(61 - (58 + 67) / 2)
    assert rows["dense", 0.75]["standard_error"] == round(math.sqrt(1 / 2), 3)
    assert rows["dense", 0.75]["exceeds_two_standard_errors"]
    assert not rows["cross_warm", 0.5]["exceeds_two_standard_errors"]
    assert rows["dense", 0.5]["points"] is None, "no cross is as fast"
    assert found["best"] == {"ours": "cross_warm_50", "rival": "grouped_2"}


def test_the_headline_comes_first_and_has_more_seeds(benchmark: Modules) -> None:
    plan = benchmark("front_runs")
    order = [(run.data_set, run.network.name, run.seed) for run in plan.runs_in_order()]
    headline = ["dense_50", "cross_50", "cross_warm_50"]
    assert len(order) == len(set(order)) == 2 * (31 * 3 + 3 * 2)
    assert {data_set for data_set, *_ in order[: len(order) // 2]} == {TINY}
    names = [name for _, name, _ in order]
    assert names[:5] == [*headline, "dense_75", "dense_100"]
    assert all(name.endswith("_50") for name in names[5:12])
    assert order[31:34] == [(TINY, name, 1) for name in headline]
    assert order[93:99] == [(TINY, name, seed) for seed in (3, 4) for name in headline]


def test_what_is_trained_can_be_limited(benchmark: Modules) -> None:
    plan = benchmark("front_runs")
    found = [run.name for run in plan.runs_in_order([CIFAR], ["cross", "cross_warm"], 1)]
    sizes = ("50", "75", "33")
    assert sorted(found) == sorted(f"cifar10_{line}_{size}" for line in ("cross", "cross_warm") for size in sizes)


def test_runs_differ_in_network_and_resolution_and_are_evaluated_once(benchmark: Modules) -> None:
    plan = benchmark("front_runs")
    first = [run for run in plan.runs_in_order(seeds=1) if run.network.fraction == plan.HALF]
    for data_set, epochs in ((TINY, 6), (CIFAR, 5)):
        recipes = [run.contestant().recipe.to_dict() for run in first if run.data_set == data_set]
        kept = [
            {
                key: value
                for key, value in one.items()
                if key not in ("model", "data", "train_transforms", "eval_transforms")
            }
            for one in recipes
        ]
        assert len(kept) == 10
        assert all(one == kept[0] for one in kept)
        assert (kept[0]["epochs"], kept[0]["evaluation"]["epochs"], kept[0]["checkpoint"]["keep"]) == (
            epochs,
            epochs,
            1,
        )
        assert not any(one["data"]["holdout"] for one in recipes)
    assert first[0].contestant(epochs=2).recipe.evaluation.epochs == 2


@pytest.mark.parametrize("family", ["cross", "lr3"])
def test_a_warm_start_is_dense_first_and_ends_with_the_same_layers(family: str, benchmark: Modules) -> None:
    from cruciform.nn.inspect import plan_of
    from cruciform.training.setup.recipe_network import build_model

    networks = benchmark("front_networks")
    warm = networks.FrontNetwork(family, 0.33, warm=True)

    def layers(table: Any) -> dict[str, Any]:
        with torch.device("meta"):
            model = build_model(table, classes=10, seed=0)
        found = {name: plan_of(module) for name, module in model.named_modules()}
        return {name: str(plan) for name, plan in found.items() if plan is not None}

    table = networks.recipe_of(warm, CIFAR).model
    assert table.low_rank_after == 0.3
    assert layers(table) == layers(networks.recipe_of(warm.cold, CIFAR).model)
    widest = networks.FrontNetwork("dense", 0.33, tuple(warm.options["widths"]))
    schemes = [["full"] * networks.FAMILIES[family].convolutions] * 3
    dense = networks.recipe_of(widest, CIFAR, [f"model.options.schemes={schemes}"]).model
    assert layers(table.at_start()) == layers(dense)


def test_what_is_recorded_needs_no_file_of_its_own(benchmark: Modules, front: ModuleType, tmp_path: Path) -> None:
    rows = benchmark("finished_rows")
    folder = tmp_path / "kept"
    assert len(front.record(folder)) == 198 + 5
    assert not front.RESULT.exists()
    for one in runs(ACCURACIES):
        rows.write_row(folder / "rows", f"{one.name}-{one.seed}", one.to_dict())
    rows.write_row(folder / "times", PART, TIMES[PART])
    missing = front.record(folder)
    assert len(missing) == 198 - 18 + 5, "a part that lacks networks is missing too"
    assert missing[0] == f"{TINY}_dense_100 seed 0"
    recorded = json.loads(front.RESULT.read_text("utf-8"))
    assert recorded["n"] == 3
    assert recorded["summary"]["ahead_of_narrow_100"] == pytest.approx(2)
    assert recorded["details"]["runs"][0]["hardware"] == {"processor": "a processor"}
    elsewhere = tmp_path / "elsewhere"
    assert front.record(elsewhere) == missing
    assert json.loads(front.RESULT.read_text("utf-8"))["summary"] == recorded["summary"]


def test_a_recorded_run_and_one_that_another_process_trains_are_not_run(
    benchmark: Modules, front: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = benchmark("front_runs")
    contestants = [(run.contestant(), run.seed) for run in plan.runs_in_order([TINY], ["cross"], 1)]
    names = [contestant.name for contestant, _ in contestants]
    finished = [replace(finish(one.name, 0, 50.0), recipe=one.recipe.to_dict()) for one, _ in contestants[:2]]
    details = {"runs": [one.to_dict() for one in finished], "times": {}}
    record_result(front.RESULT, summary={}, details=details, command="", n=1)
    given = argparse.Namespace(
        workers=1,
        data_set=[TINY],
        only=["cross"],
        seeds=1,
        epochs=None,
        precision=None,
        folder=tmp_path,
        command="train",
    )
    with hold(tmp_path / "held" / f"{names[2]}-0"):
        front.train(given)
    assert capsys.readouterr().out == f"{names[2]}-0: another process trains it\n"
    assert not (tmp_path / "runs").exists()


def test_a_part_counts_as_measured_with_all_networks_alone(
    benchmark: Modules, front: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = benchmark("front_runs")
    measured: list[list[str]] = []

    def time_deployed(part: str, networks: Sequence[Any], *rest: Any) -> dict[str, Any]:
        measured.append([part, *(network.name for network in networks)])
        return timed(**{network.cold.name: 1.0 for network in networks})

    monkeypatch.setattr(front, "time_deployed", time_deployed)
    given = argparse.Namespace(
        folder=tmp_path, rounds=1, search_seconds=1.0, part=[PART, "openvino_ms_b1"], again=False, precision=None
    )
    front.speed(given, [plan.CROSS])
    front.speed(given, [plan.CROSS, plan.CROSS_WARM])
    assert [part for part, *_ in measured] == given.part, "a warm-started network is deployed as the other one"
    front.speed(given, [plan.NARROW, plan.CROSS])
    assert len(measured) == 4
    assert front.read_times(tmp_path)[PART]["processor"]


def test_texts_have_a_row_for_every_network_and_a_sentence_for_every_family(
    benchmark: Modules, front: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts, counted, rows = benchmark("front_in_texts"), benchmark("counted"), benchmark("finished_rows")
    monkeypatch.setattr(counted, "RESULTS", front.RESULT.parent)
    for one in runs({**ACCURACIES, "cross_75": (66.0, 67.0, 68.0)}):
        rows.write_row(tmp_path / "rows", f"{one.name}-{one.seed}", one.to_dict())
    times = {**TIMES[PART]["networks"], "cross_75": {"milliseconds": 16.0}}
    rows.write_row(tmp_path / "times", PART, {"networks": times})
    front.record(tmp_path)
    assert "| `cross_50` (59) | 58.00 ± 1.00 (3) | – | 4.00 / – | – / – | – / – |" in texts.front_table().splitlines()
    sentences = texts.front_sentences().splitlines()
    assert "- `dense` loses on 100 classes (75 %: -1.50 ± 0.71)." in sentences
    assert "- `grouped_2` has no network of equal time on 100 classes." in sentences
    assert "- `cross_warm` is not distinguishable on 100 classes (50 %: +1.50 ± 0.82)." in sentences
    assert any(line.startswith("- `separable` wins on 100 classes (50 %: +10.") for line in sentences)


def test_the_picture_has_a_line_for_every_family_on_each_data_set(benchmark: Modules) -> None:
    pytest.importorskip("matplotlib")
    picture = benchmark("front_picture")
    found = [*runs(ACCURACIES), *runs({"cross_50": (90.0, 91.0)}, CIFAR)]
    details = {"runs": [run.to_dict() for run in found], "times": TIMES}
    figure = picture.draw_front(details)
    labels = [axes.get_legend_handles_labels()[1] for axes in figure.axes]
    assert [len(each) for each in labels] == [5, 1]
    assert labels[0][:2] == ["cross", "cross, warm-started"]
    drawn: Any = figure.axes[0].containers[0]
    assert list(drawn.lines[0].get_xdata()) == [4 / 16]
    assert list(drawn.lines[0].get_ydata()) == [58.0]
    assert set(picture.LOOKS) == set(benchmark("front_runs").lines())
    with pytest.raises(ValueError, match="timed"):
        picture.draw_front({**details, "times": {}})
