"""Numbers of the paper and of arithmetic on it, never of our own runs."""

import csv
from importlib.resources import files
from typing import Any

import pytest
import torch

from cruciform.measure.macs import profile
from cruciform.models.model_card import Published, published_rows
from cruciform.models.zoo import create_model
from cruciform.paper.tables import check_tables
from cruciform.schemes import make_plan
from cruciform.spec import ConvSpec


def counts(name: str, *, training: bool = False, **options: Any) -> tuple[int, int]:
    with torch.device("meta"):
        network = create_model(name, **options)
    counted = profile(network, network.config.input_shape, training=training)
    return counted.macs_paper, counted.params


def test_all_published_rows_are_equal_to_the_last_digit() -> None:
    rows = list(check_tables())
    assert len(rows) == 18
    assert [f"{row.published.table}/{row.published.network}" for row in rows if not row.equal] == []


@pytest.mark.parametrize(
    ("name", "macs", "params"),
    [
        ("vgg11_gmp_lr", 2518134440, 26054888),
        ("vgg11_gmp_lr_2x_printed", 9947887976, 37371368),
        ("vgg11_gmp_lr_join_wfull_printed", 5101599080, 28794056),
        ("vgg11_gmp_lr_lde_printed", 504427528, 24071752),
    ],
)
def test_networks_as_printed_have_the_counts_of_their_table(name: str, macs: int, params: int) -> None:
    assert counts(name) == (macs, params)


def test_nin_c3_as_printed_saves_nothing() -> None:
    assert counts("nin_c3_printed", input_size=30) == (192859850, 994826)


@pytest.mark.parametrize(
    ("name", "macs", "params"),
    [
        ("vgg11_gmp", 1891089293, 28942925),
        ("vgg11_gmp_lr_join", 977487437, 24000653),
        ("vgg11_gmp_lr", 643513229, 22797773),
    ],
)
def test_true_counts_for_mit_places(name: str, macs: int, params: int) -> None:
    assert counts(name, stride=2, num_classes=205) == (macs, params)


def test_unpublished_rows_of_the_thesis() -> None:
    assert counts("vgg11_gmp", stride=2) == (1894346408, 32200040)
    assert counts("vgg11_gmp_sf", global_pool=False) == (6626457960, 130321320)


def test_googlenet_as_deployed_and_on_its_own_geometry() -> None:
    assert counts("googlenet", auxiliary=False) == (1582680152, 6998552)
    assert counts("googlenet_lr", training=True)[0] == 1075046696
    assert counts("googlenet_lr_conv1", training=True)[0] == 742680872


def test_nin_on_whole_images() -> None:
    assert counts("nin")[0] == 222487946
    assert counts("nin_c3_lr")[0] == 119858762


def test_layer_counts_of_the_timing_figure() -> None:
    """The paper's figure 6 counts every filter group of gmp-lr on its own."""
    text = (files("cruciform.paper") / "timings.csv").read_text("utf-8")
    published = [int(row["macs"]) for row in csv.DictReader(text.splitlines())]
    widths = [(3, 64, 224), (64, 128, 112), (128, 256, 56), (256, 256, 56), (256, 512, 28), (512, 512, 28)]
    widths += [(512, 512, 14)] * 2
    ours = [
        macs
        for c, d, size in widths
        for macs in make_plan(ConvSpec(c, d, 3, padding=1), "lr").group_macs((size, size), count="paper")[0]
    ]
    assert ours == published


@pytest.mark.parametrize("row", published_rows(), ids=lambda row: f"{row.table}/{row.network}")
def test_the_package_data_is_whole(row: Published) -> None:
    assert row.macs > 0
    assert row.params > 0
    assert 0 < row.top1 < 1
    assert row.explanation
    assert row.status in {"exact", "explained"}
