import json
from pathlib import Path

import pytest
import torch

from cruciform.deployment.search.clock import Timing
from cruciform.paper.figures import FIGURES, Material
from cruciform.paper.published import published_timings
from cruciform.paper.timings import correlation, count_groups, describe_timings, record_timings, time_parts, timed_parts


def test_every_filter_group_has_the_published_name_and_count() -> None:
    assert count_groups() == [(one.layer, one.macs) for one in published_timings()]


def test_a_group_alone_is_the_group_of_the_layer() -> None:
    part = timed_parts(32)[2]
    module = part.build()
    assert module(torch.zeros(1, 64, 16, 16)).shape == (1, 64, 16, 16)
    assert module[0].kernel_size == part.group.kernel == (3, 1)


@pytest.mark.slow
def test_groups_are_timed_each_on_its_own_input() -> None:
    chosen = [timed_parts(32)[0], timed_parts(32)[-1]]  # 32×32 images and 2×2 maps
    times = time_parts(chosen, "torch", batch=2, rounds=2)
    assert list(times) == ["conv1x", "conv5y-2"]
    assert all(len(timing.rounds) == 2 and timing.best > 0 for timing in times.values())


def test_correlation_is_pearsons() -> None:
    assert correlation([1, 2, 3], [2, 4, 6]) == pytest.approx(1)
    assert correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert correlation([1, 1], [1, 2]) == 0


def test_what_is_recorded_can_be_drawn(tmp_path: Path) -> None:
    chosen = timed_parts()
    # A machine that makes 10 GMACs a second: 0.1 ns each.
    times = {part.layer: Timing((part.macs * 1e-10, part.macs * 1.1e-10)) for part in chosen}
    details = describe_timings(times, chosen, target="torch", batch=1)
    summary = record_timings(details, tmp_path / "paper-timings.json", command="here")
    assert summary["gmacs_per_second"] == pytest.approx(10)
    assert summary["correlation"] == pytest.approx(1)
    assert summary["largest_drift"] == pytest.approx(0.1)
    recorded = json.loads((tmp_path / "paper-timings.json").read_text("utf-8"))
    assert recorded["n"] == 2
    figure, note = FIGURES.get("timings")(Material(tmp_path))
    assert note == ""
    assert "ours, torch, one thread" in [text.get_text() for text in figure.legends[0].get_texts()]


def test_times_of_another_size_of_image_are_not_drawn_beside_these_counts(tmp_path: Path) -> None:
    chosen = timed_parts(32)[:1]
    details = describe_timings({"conv1x": Timing((1.0, 1.0))}, chosen, target="torch", batch=1)
    record_timings(details, tmp_path / "paper-timings.json", command="here")
    _, note = FIGURES.get("timings")(Material(tmp_path))
    assert "are for images of 32 pixels" in note


@pytest.mark.slow
def test_the_command_times_all_sixteen_groups(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from cruciform.cli.main import app

    result = tmp_path / "new" / "timings.json"
    words = [
        "paper",
        "timings",
        "--target",
        "torch",
        "--rounds",
        "2",
        "--size",
        "32",
        "--result",
        str(result),
        "--json",
    ]
    answer = CliRunner().invoke(app, words)
    assert answer.exit_code == 0, answer.output
    assert len(json.loads(result.read_text("utf-8"))["details"]["layers"]) == 16
