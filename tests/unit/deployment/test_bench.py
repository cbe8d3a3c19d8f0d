"""Benches: what is compared, what realised means, and under which names it is recorded."""

import json
import re
from pathlib import Path
from typing import get_type_hints

import pytest

from cruciform.api.bench import bench as bench_from_python
from cruciform.cli.shipping.bench import bench as command
from cruciform.deployment.bench.bench import Bench, Row, Suite, _realised
from cruciform.deployment.bench.bench_result import check_result, read_parts, record_bench, summarize
from cruciform.deployment.bench.suites import SUITES
from cruciform.deployment.search.build import Build
from cruciform.deployment.search.clock import Timing
from cruciform.errors import OptionError
from cruciform.measure.macs import profile

ALL = [suite for suites in SUITES.values() for suite in suites]


def test_every_suite_is_named_where_people_choose_one() -> None:
    (option,) = get_type_hints(command, include_extras=True)["suite"].__metadata__
    assert set(SUITES) <= set(re.findall(r"\w+", option.help))
    assert all(f"``{name}``" in str(bench_from_python.__doc__) for name in SUITES)


@pytest.mark.slow
@pytest.mark.parametrize("suite", ALL, ids=lambda suite: suite.baseline)
def test_every_network_of_a_suite_can_be_built_and_costs_less_than_its_baseline(libraries: None, suite: Suite) -> None:
    baseline, *others = (
        profile(suite.build(name), suite.input_size).macs for name in (suite.baseline, *suite.networks)
    )
    assert max(others) < baseline


def test_all_of_a_saving_that_became_time_is_one() -> None:
    baseline = Row("dense", 900, Timing((9.0, 10.0)), 1.0, Build({}))
    assert _realised(baseline, 300, Timing((3.0, 5.0))) == pytest.approx(1)
    assert _realised(baseline, 300, Timing((6.0,))) == pytest.approx(0.5)


def made(suite: Suite, batch: int) -> Bench:
    baseline = Row(suite.baseline, 900, Timing((9.0,)), 1.0, Build({}))
    rows = tuple(Row(name, 300, Timing((4.0,)), 0.75, Build({})) for name in suite.networks)
    return Bench(suite, "onnxruntime", batch, 1, baseline, "openvino", {}, rows)


def test_names_in_a_summary() -> None:
    assert list(summarize(made(SUITES["vgg"][0], 16))) == [
        "ort_f32_b16_lr", "ort_f32_b16_lr_join", "ort_f32_b16_lr_join_wfull",
    ]  # fmt: skip
    unet, resnet = SUITES["volumes"]
    assert next(iter(summarize(made(unet, 1)))) == "ort_f32_unet"
    assert next(iter(summarize(made(resnet, 4)))) == "ort_f32_b4_resnet"


def test_a_bench_does_not_take_the_place_of_another_suites(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    record_bench(made(SUITES["vgg"][0], 1), path, command="cruciform bench", packages=())
    check_result(path, SUITES["vgg"][0])
    check_result(tmp_path / "absent.json", SUITES["nin"][0])
    with pytest.raises(OptionError, match="has results of vgg11_gmp; choose another file"):
        check_result(path, SUITES["nin"][0])
    path.write_text('{"weights": []}')
    with pytest.raises(OptionError, match="is not a result of 'cruciform bench'"):
        check_result(path, SUITES["vgg"][0])


def test_comparisons_of_one_suite_lie_side_by_side_in_its_file(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    for suite in SUITES["volumes"]:
        record_bench(made(suite, 1), path, command=f"cruciform bench {suite.label}", packages=())
    parts = read_parts(path)
    assert [(part["comparison"], part["command"]) for part in parts] == [
        ("unet", "cruciform bench unet"), ("resnet", "cruciform bench resnet"),
    ]  # fmt: skip
    assert all(part["hardware"]["cores"] for part in parts)
    whole = json.loads(path.read_text())
    assert {"ort_f32_unet", "ort_f32_resnet"} < set(whole["summary"])
    assert whole["command"] == "cruciform bench unet; cruciform bench resnet"
