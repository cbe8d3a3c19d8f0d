"""The model of scale, against figures that others published and arithmetic that was done elsewhere."""

import json
import math

import pytest
from typer.testing import CliRunner

from cruciform.cli.main import app
from cruciform.cli.training.scale import read_link
from cruciform.errors import OptionError
from cruciform.scale.assumptions import Assumptions, assume
from cruciform.scale.goodput import Failures, simulate_goodput
from cruciform.scale.model import TrainingCost, TrainingJob, estimate

LLAMA_3 = 50_681 * 3600  # GPU-seconds between unexpected interruptions (Meta 2024)
OPT = 11_904 * 3600  # the same of OPT-175B (Meta 2022)
VGG16 = TrainingCost("VGG-16", 138_360_000, 15_470_000_000, thin=False)
VGG16_GAP = TrainingCost("VGG-16-GAP", 15_230_000, 15_350_000_000, thin=False)
VGG16_LR_GAP = TrainingCost("VGG-16-lr-GAP", 5_420_000, 5_170_000_000, thin=True)
HALF = Assumptions(realised=0.5)


def test_llama_3_made_progress_in_more_than_90_percent_of_its_time() -> None:
    found = Failures(LLAMA_3 / 16_384, checkpoint=30, restart=300)
    assert found.goodput == pytest.approx(0.909, abs=0.001)
    assert found.goodput == pytest.approx(0.90, abs=0.03)
    mean, _ = simulate_goodput(found, work=54 * 86_400, seeds=200)
    assert mean == pytest.approx(found.goodput, abs=0.01)


@pytest.mark.parametrize(
    ("between", "gpus", "checkpoint", "restart", "goodput"),
    [(LLAMA_3, 8, 1, 60, 0.9997), (LLAMA_3, 1024, 1, 60, 0.9963), (LLAMA_3, 16_384, 1, 60, 0.9816),
     (LLAMA_3, 64, 30, 300, 0.995), (LLAMA_3, 1024, 30, 300, 0.980), (OPT, 16_384, 1, 60, 0.952),
     (OPT, 1024, 1, 60, 0.992)],
)  # fmt: skip
def test_goodput_is_that_of_young_and_daly(
    between: float, gpus: int, checkpoint: float, restart: float, goodput: float
) -> None:
    assert Failures(between / gpus, checkpoint, restart).goodput == pytest.approx(goodput, abs=6e-4)


@pytest.mark.parametrize("mean_seconds", [600, 3_000, 100_000])
def test_played_through_it_comes_to_the_same(mean_seconds: float) -> None:
    failures = Failures(mean_seconds, checkpoint=5, restart=60)
    mean, deviation = simulate_goodput(failures, work=40 * mean_seconds, seeds=1000)
    assert mean == pytest.approx(failures.goodput, abs=0.02)
    assert 0 < deviation < 0.2


@pytest.mark.parametrize(
    ("cost", "images", "megabytes", "cores"),
    [(VGG16, 3729, 410, 15), (VGG16_GAP, 3759, 414, 15), (VGG16_LR_GAP, 5575, 613, 22)],
)
def test_a_gpu_needs_so_many_images_bytes_and_cores(
    cost: TrainingCost, images: float, megabytes: float, cores: int
) -> None:
    found = estimate(cost, TrainingJob(1e9, 64, 100e9), HALF)
    assert found.images_per_second_per_gpu == pytest.approx(images, rel=0.002)
    assert found.ingest_bytes_per_second / 1e6 == pytest.approx(megabytes, rel=0.003)
    assert round(found.cores_per_gpu) == cores


@pytest.mark.parametrize(
    ("cost", "link", "shares"),
    [(VGG16, 25e9, (4, 4, 4)), (VGG16, 100e9, (17, 15, 14)), (VGG16, 400e9, (55, 50, 45)),
     (VGG16_GAP, 25e9, (34, 31, 29)), (VGG16_GAP, 100e9, (96, 87, 75)), (VGG16_GAP, 400e9, (100, 100, 100)),
     (VGG16_LR_GAP, 25e9, (57, 51, 45)), (VGG16_LR_GAP, 100e9, (100, 100, 90))],
)  # fmt: skip
def test_scaling_efficiency_at_64_256_and_1024_gpus(cost: TrainingCost, link: float, shares: tuple[int, ...]) -> None:
    for gpus, share in zip((64, 256, 1024), shares, strict=True):
        assert 100 * estimate(cost, TrainingJob(1e9, gpus, link), HALF).efficiency == pytest.approx(share, abs=1.5)


def test_the_classifier_saves_more_communication_than_low_rank() -> None:
    dense, pooled, low_rank = (
        estimate(cost, TrainingJob(1e9, 64, 100e9), HALF).gradient_bytes for cost in (VGG16, VGG16_GAP, VGG16_LR_GAP)
    )
    assert dense / pooled == pytest.approx(9.1, abs=0.1)
    assert pooled / low_rank == pytest.approx(2.8, abs=0.1)


def test_one_machine_sends_nothing() -> None:
    assert estimate(VGG16, TrainingJob(1e6, 8, 1e9), HALF).efficiency == 1


def test_wrong_assumptions_are_refused() -> None:
    with pytest.raises(OptionError, match="there is no assumption 'prize'. Did you mean 'price'"):
        assume(["prize=1"])
    with pytest.raises(OptionError, match="price=cheap: write a number"):
        assume(["price=cheap"])
    with pytest.raises(OptionError, match="realised is a fraction between 0 and 1, not 2"):
        assume(["realised=2"])
    with pytest.raises(OptionError, match="'fast' is not a link"):
        read_link("fast")
    with pytest.raises(OptionError, match="the run never finishes"):
        simulate_goodput(Failures(1, 2, 1), work=10)


def test_the_command_names_every_assumption_and_its_source() -> None:
    words = ["scale", "--network", "vgg11_gmp_lr", "--images", "1e9", "--gpus", "64", "--link", "100Gb"]
    shown = CliRunner().invoke(app, words, catch_exceptions=False).output
    for text in (
        "26,054,888",
        "scaling efficiency",
        "ingest per GPU",
        "goodput",
        "Llama 3",
        "results/bench-vgg.json",
    ):
        assert text in shown
    found = json.loads(CliRunner().invoke(app, [*words, "--assume", "price=1", "--json"]).output)
    assert found["assumptions"]["price"] == {"value": 1.0, "unit": "$ per GPU-hour", "source": "given"}
    assert found["networks"]["vgg11_gmp_lr"]["gradient_bytes"] == 4 * 26_054_888


@pytest.mark.parametrize("images", [0.0, -5.0, math.nan, math.inf])
def test_no_job_is_of_images_that_are_no_number(images: float) -> None:
    with pytest.raises(OptionError, match="images, gpus and link must be positive"):
        TrainingJob(images, 8, 1e9)
