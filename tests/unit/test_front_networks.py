"""The networks of the front: their MACs, their widths, and that recipes train them at their resolution."""

import importlib
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import cruciform
from cruciform.data.samples.randomness import KeyedGenerator

ROOT = Path(__file__).parents[2]
WITHIN = 0.03
PHOTOGRAPHS = Path(os.environ.get("CRUCIFORM_DATA", "")) / "tinyimagenet100"


@pytest.fixture
def front(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("front_networks")


def test_every_family_has_every_size(front: ModuleType) -> None:
    names = [network.name for network in front.front_networks()]
    assert len(names) == len(set(names)) == 8 * 3
    assert names[:3] == ["dense_75", "dense_50", "dense_33"]


@pytest.mark.slow
@pytest.mark.parametrize("classes", [10, 100])
def test_macs_are_within_three_percent_of_the_wanted(front: ModuleType, classes: int) -> None:
    assert front.dense_macs() == 118_147_360
    ratios = {
        network.name: front.count_macs(network, classes=classes) / (network.fraction * front.dense_macs())
        for network in front.front_networks()
    }
    assert {name: ratio for name, ratio in ratios.items() if abs(ratio - 1) > WITHIN} == {}


@pytest.mark.parametrize("family", ["dense", "separable", "resolution"])
def test_the_smallest_of_some_families_has_the_wanted_macs(front: ModuleType, family: str) -> None:
    macs = front.count_macs(front.FrontNetwork(family, 0.33))
    assert macs == pytest.approx(0.33 * 118_147_360, rel=WITHIN)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "fraction"), [("dense", 0.5), ("grouped_4", 0.33), ("resolution", 0.75)])
def test_widths_are_those_that_bisection_finds(front: ModuleType, family: str, fraction: float) -> None:
    network = front.FrontNetwork(family, fraction)
    assert front.find_widths(network) == tuple(network.options["widths"])


@pytest.mark.parametrize("data_set", ["cifar10", "tinyimagenet100"])
def test_recipes_differ_in_the_network_and_the_resolution_alone(front: ModuleType, data_set: str) -> None:
    recipes = [front.recipe_of(network, data_set) for network in front.front_networks()]
    fixed = ("epochs", "batch_size", "optimizer", "schedule", "loss", "lookahead", "freeze")
    assert len({str([getattr(recipe, key) for key in fixed]) for recipe in recipes}) == 1
    for network, recipe in zip(front.front_networks(), recipes, strict=True):
        assert recipe.model.options == network.options
        image = np.zeros((48, 52, 3) if data_set == "tinyimagenet100" else (32, 32, 3), np.uint8)
        assert recipe.data.short_side == (round(network.side / 0.875) if data_set == "tinyimagenet100" else None)
        for transforms in (recipe.train_transforms, recipe.eval_transforms):
            made = image
            for transform in transforms:
                made = transform(made, KeyedGenerator(0).at(0, 0))
            assert made.shape == (network.side, network.side, 3)


@pytest.mark.slow
def test_a_network_is_trained_on_smaller_images_than_the_data_set_has(front: ModuleType, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for number in range(1, 6):
        _write_batch(tmp_path / f"data_batch_{number}.bin", random)
    _write_batch(tmp_path / "test_batch.bin", random)
    changes = [f"data.path='{tmp_path}'", "epochs=1", "batch_size=16", "model.options.widths=[8, 8, 8]"]
    recipe = front.recipe_of(front.FrontNetwork("resolution", 0.5), "cifar10", [*changes, "log.tensorboard=false"])
    network: Any = cruciform.train(recipe, tmp_path / "run").eval()
    assert network.config.input_size == 24
    assert network(torch.zeros(1, 3, 24, 24)).shape == (1, 10)


def _write_batch(path: Path, random: np.random.Generator) -> None:
    records = random.integers(0, 256, (16, 1 + 3 * 32 * 32), np.uint8)
    records[:, 0] %= 10
    path.write_bytes(records.tobytes())


@pytest.mark.slow
@pytest.mark.skipif(not PHOTOGRAPHS.is_dir(), reason="CRUCIFORM_DATA has no tinyimagenet100")
def test_the_photographs_are_read_at_every_resolution(front: ModuleType) -> None:
    from cruciform.training.engine.sample_images import sample_images

    for fraction, side in ((0.75, 28), (0.33, 20)):
        recipe = front.recipe_of(front.FrontNetwork("resolution", fraction), "tinyimagenet100")
        assert sample_images(recipe, 2).shape == (2, 3, side, side)
