"""The table of VGG networks on 100 classes: which networks, by which recipe, and what is concluded from their runs."""

import argparse
import importlib
import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cruciform.measure.record import record_result
from cruciform.training.experiments.race import Finish
from cruciform.training.run.lock import hold

ROOT = Path(__file__).parents[2]
PHOTOGRAPHS = Path(os.environ.get("CRUCIFORM_DATA", "")) / "tinyimagenet100"
DENSE, LR, LR_2X, WFULL, NARROW = (
    f"vgg11_gmp{end}" for end in ("", "_lr", "_lr_2x", "_lr_join_wfull", "_narrow_lr")
)  # fmt: skip
ACCURACIES = {
    DENSE: (0.54, 0.55, 0.56),
    LR: (0.53, 0.54, 0.55),
    LR_2X: (0.56, 0.55, 0.54),
    WFULL: (0.57, 0.58, 0.59),
    NARROW: (0.50, 0.51, 0.52),
}
STD_OF_THREE = 1.0  # percentage points, of each of them


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module


def finish(name: str, seed: int, top1: float) -> Finish:
    recipe = {"model": {"name": name}, "epochs": 12, "batch_size": 100, "optimizer": {"kind": "sgd"}}
    curve = [{"epoch": 12, "seconds": 999.0, "top1": top1}]
    return Finish(name, seed, 64_000_000, 9, 50_000, recipe, curve, {})


def runs(accuracies: Mapping[str, tuple[float, ...]] = ACCURACIES) -> list[Finish]:
    return [finish(name, seed, top1) for name, each in accuracies.items() for seed, top1 in enumerate(each)]


def summary_of(benchmark: Callable[[str], ModuleType], *given: Any) -> dict[str, float]:
    summary, _ = benchmark("tiny_vgg_summary").summarize_runs(*given)
    return dict(summary)


def test_a_difference_has_the_standard_error_of_the_means(benchmark: Callable[[str], ModuleType]) -> None:
    summary = summary_of(benchmark, runs())
    error = round(math.sqrt(STD_OF_THREE**2 / 3 + STD_OF_THREE**2 / 3), 3)
    for name, points in (
        ("lr_ahead_of_narrow", 3.0), ("lr_ahead_of_dense", -1.0), ("wfull_ahead_of_dense", 3.0),
        ("lr_2x_ahead_of_dense", 0.0),
    ):  # fmt: skip
        assert summary[name] == pytest.approx(points)
        assert summary[f"{name}_standard_error"] == error
        assert summary[f"{name}_exceeds_two_standard_errors"] == (abs(points) > 2 * error)
    assert summary[f"{WFULL}_accuracy"] == pytest.approx(58)
    assert summary[f"{WFULL}_accuracy_std"] == summary["accuracy_std_pooled"] == STD_OF_THREE
    # Of ten pairs these exceed 1.63 points: narrow with the four others (3, 4, 4, 7), wfull with the other three.
    assert (summary["differences"], summary["differences_exceeding_two_standard_errors"]) == (10, 7)


def test_single_runs_have_no_standard_error(benchmark: Callable[[str], ModuleType]) -> None:
    summary = summary_of(benchmark, runs({DENSE: (0.54,), WFULL: (0.57, 0.58)}))
    assert summary["wfull_ahead_of_dense"] == pytest.approx(3.5)
    assert not [key for key in summary if "standard_error" in key]


def test_the_order_is_compared_by_spearman(benchmark: Callable[[str], ModuleType]) -> None:
    order = benchmark("tiny_vgg_summary")
    published = {"a": 0.1, "b": 0.2, "c": 0.3}
    assert order.ranks([5.0, 1.0, 5.0]) == [2.5, 1.0, 2.5]
    assert order.rank_correlation({"a": 7, "b": 8, "c": 9}, published) == pytest.approx(1)
    assert order.rank_correlation({"a": 9, "b": 8, "c": 7}, published) == pytest.approx(-1)
    assert order.rank_correlation({"a": 8, "b": 7, "c": 9}, published) == pytest.approx(0.5)


def test_only_seeds_with_all_networks_count_as_an_order(benchmark: Callable[[str], ModuleType]) -> None:
    # Published: wfull, 2x, gmp, lr. Seed 0: wfull, 2x, gmp, lr; seed 1: wfull, lr, gmp, 2x, so that ranks of two
    # networks differ by 2: 1 − 6·(4 + 4)/(4·15) = 0.2. Seed 2 lacks one network.
    three = {WFULL: (0.6, 0.6, 0.6), LR_2X: (0.55, 0.51), DENSE: (0.54, 0.54, 0.5), LR: (0.53, 0.55, 0.5)}
    summary = summary_of(benchmark, runs(three))
    assert summary["rank_correlation_networks"] == 4
    assert summary["rank_correlation_seeds"] == 2
    assert summary["rank_correlation_seed_mean"] == pytest.approx((1 + 0.2) / 2)
    assert summary["rank_correlation_seed_std"] == pytest.approx(0.8 / math.sqrt(2), abs=1e-3)


def test_times_are_those_measured_alone_not_those_that_passed(benchmark: Callable[[str], ModuleType]) -> None:
    training = {"networks": {DENSE: {"seconds": [0.3, 0.2]}}}
    deployed = {"networks": {LR: {"milliseconds": 1.25}}}
    summary = summary_of(benchmark, runs(), training, deployed)
    assert summary[f"{DENSE}_train_seconds"] == pytest.approx(12 * 500 * 0.2)
    assert summary[f"{LR}_ms_b1"] == 1.25
    assert f"{LR}_train_seconds" not in summary
    assert f"{DENSE}_ms_b1" not in summary


def test_narrow_networks_have_the_macs_of_their_rivals(benchmark: Callable[[str], ModuleType]) -> None:
    networks = benchmark("tiny_vgg_networks")
    for narrow, rival in networks.RIVALS.items():
        macs = [networks.count_macs(networks.recipe_of(name)) for name in (narrow, rival)]
        assert macs[0] == pytest.approx(macs[1], rel=0.03)


def test_one_recipe_trains_all_and_reads_the_validation_set_once(benchmark: Callable[[str], ModuleType]) -> None:
    networks = benchmark("tiny_vgg_networks")
    recipes = [row.contestant().recipe.to_dict() for row in networks.table_rows()]
    assert len(recipes) == 9
    models = [recipe.pop("model") for recipe in recipes]
    assert all(recipe == recipes[0] for recipe in recipes)
    assert recipes[0]["evaluation"]["epochs"] == recipes[0]["epochs"]
    assert not recipes[0]["data"]["holdout"]
    options = [{key: value for key, value in model["options"].items() if key != "width"} for model in models]
    assert all(one == options[0] for one in options)
    assert {model["options"]["width"] for model in models[:7]} == {0.5}


def test_equal_training_time_gives_a_faster_network_more_epochs(benchmark: Callable[[str], ModuleType]) -> None:
    networks = benchmark("tiny_vgg_networks")
    epochs = networks.recipe_of(DENSE).epochs
    rows = networks.same_time_rows({DENSE: 0.2, LR: 0.1, WFULL: 0.4})
    assert [(row.name, row.epochs) for row in rows] == [
        (f"{LR}_same_time", 2 * epochs), (f"{WFULL}_same_time", epochs // 2),
    ]  # fmt: skip
    assert rows[0].contestant().recipe.model.name == LR


def test_what_is_finished_is_recorded_and_what_is_missing_is_listed(
    benchmark: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, rows = benchmark("tiny_vgg"), benchmark("finished_rows")
    monkeypatch.setattr(table, "RESULT", tmp_path / "results" / "tiny-vgg.json")
    assert len(table.record(tmp_path)) == 9 * 3 - 2 + 3
    assert not table.RESULT.exists()
    for one in [*runs(), finish(f"{LR}_same_time", 0, 0.55)]:
        rows.write_row(tmp_path / "rows", f"{one.name}-{one.seed}", one.to_dict())
    missing = table.record(tmp_path)
    assert f"{DENSE} seed 0" not in missing
    assert "vgg11_gmp_sf seed 1" in missing
    assert "vgg11_gmp_sf seed 2" not in missing
    assert "times: deployed" in missing
    recorded = json.loads(table.RESULT.read_text("utf-8"))
    assert recorded["n"] == 3
    assert recorded["summary"][f"{LR}_seeds"] == 3
    assert recorded["details"]["missing"] == missing
    (tmp_path / "rows" / f"{DENSE}-0.json").unlink()
    assert table.record(tmp_path) == missing, "what is recorded needs no file of its own"


def test_a_run_that_another_process_holds_is_left_to_it(
    benchmark: Callable[[str], ModuleType],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    table, networks = benchmark("tiny_vgg"), benchmark("tiny_vgg_networks")
    monkeypatch.setattr(table, "RESULT", tmp_path / "results" / "tiny-vgg.json")
    given = argparse.Namespace(workers=1, precision=None, seeds=1, folder=tmp_path, command="table")
    with hold(tmp_path / "held" / f"{DENSE}-0"):
        table.train([networks.Row(DENSE, 1)], given)
    assert capsys.readouterr().out == f"{DENSE}-0: another process trains it\n"
    assert not (tmp_path / "runs").exists()


def test_the_text_has_a_row_for_every_network_and_says_what_is_not_distinguishable(
    benchmark: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts, counted = benchmark("table_in_texts"), benchmark("counted")
    assert texts.recorded("tiny-vgg") == (ROOT / "results" / "tiny-vgg.json").is_file()
    for module in (texts, counted):
        monkeypatch.setattr(module, "RESULTS", tmp_path)
    assert not texts.recorded("tiny-vgg")
    summary = summary_of(benchmark, [*runs(), finish(f"{LR}_same_time", 0, 0.55)])
    details = {"missing": ["times: deployed"]}
    record_result(tmp_path / "tiny-vgg.json", summary=summary, details=details, command="", n=1)
    lines = texts.trained_table().splitlines()
    assert f"| `{WFULL}` | 70.42 | 58.00 ± 1.00 (3) | 64.0 | – | – |" in lines
    assert f"| `{LR}`, 12 epochs | – | 55.00 (1) | 64.0 | – | – |" in lines
    differences = texts.trained_differences().splitlines()
    assert f"- `{LR}` is 3.00 points ahead of `{NARROW}` (standard error 0.82): more than two standard errors." in (
        differences
    )
    assert (
        f"- `{LR}` is 1.00 points behind `{DENSE}` (standard error 0.82): not distinguishable from none: within two "
        "standard errors."
    ) in differences
    assert "over 4 networks" in texts.trained_order()
    assert texts.trained_missing() == "Not finished: times: deployed."
    rendered = benchmark("numbers_in_texts").render('{% if recorded("tiny-vgg") %}{{ trained_order() }}{% endif %}')
    assert rendered == texts.trained_order()


@pytest.mark.slow
@pytest.mark.skipif(not PHOTOGRAPHS.is_dir(), reason="it needs tinyimagenet100 in CRUCIFORM_DATA")
@pytest.mark.parametrize("network", [DENSE, WFULL])
def test_the_recipe_takes_a_step_on_real_images(network: str, benchmark: Callable[[str], ModuleType]) -> None:
    import torch

    from cruciform.data.loader import Loader
    from cruciform.data.order import Order
    from cruciform.training.engine.learner import Learner
    from cruciform.training.runtime.runtime import SingleProcess
    from cruciform.training.setup.recipe_data import open_datasets
    from cruciform.training.setup.recipe_network import build_model

    recipe, runtime = benchmark("tiny_vgg_networks").recipe_of(network), SingleProcess(torch.device("cpu"))
    train, test = open_datasets(recipe.data, runtime)
    assert (len(train), len(test), len(train.classes)) == (50_000, 5_000, 100)
    learner = Learner(recipe, build_model(recipe.model, classes=100, seed=0), runtime)
    loader = Loader(train, Order(len(train), recipe.batch_size, seed=0), recipe.train_transforms)
    batch = loader.read(0)
    assert batch.images.shape == (128, 3, 44, 44)
    first, *_, last = [learner.step(batch, step, 1.0, steps=100).loss / 128 for step in range(8)]
    assert last < first < 1.3 * math.log(100)
