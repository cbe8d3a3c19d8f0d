"""The trained networks that lie in models/: small, without pickle, and what their cards say."""

import os
import re
from pathlib import Path

import pytest

from cruciform import load, profile
from cruciform.api.evaluate import evaluate
from cruciform.data.sets.cifar10 import CLASSES
from cruciform.store.directory import interface_of
from cruciform.training.engine.trained_run import preprocessing_of
from cruciform.training.recipe.cookbook import load_recipe

MODELS = Path(__file__).parents[2] / "models"
SHIPPED = sorted(path.name for path in MODELS.glob("*") if path.is_dir())
LARGEST = 8e6  # bytes


def entry(name: str, title: str) -> str:
    """Returns what a card has beside a title."""
    text = (MODELS / name / "README.md").read_text("utf-8")
    return next(line.split("|")[2].strip() for line in text.splitlines() if line.startswith(f"| {title}"))


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_network_is_small_and_costs_what_its_card_says(name: str) -> None:
    files = list((MODELS / name).iterdir())
    assert sum(file.stat().st_size for file in files) < LARGEST
    assert {file.suffix for file in files} <= {".json", ".safetensors", ".md"}
    counted = profile(load(MODELS / name), (3, 32, 32))
    assert f"{counted.macs:,}" == entry(name, "multiply-accumulates")
    assert f"{counted.params:,}" == entry(name, "parameters")


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_network_preprocesses_images_as_its_recipe_does(name: str) -> None:
    found, own = interface_of(MODELS / name), preprocessing_of(load_recipe(f"{name}_cifar10"))
    assert found.classes == CLASSES
    assert ", ".join(CLASSES) == entry(name, "classes")
    said = found.preprocessing
    assert said
    # What makes other images fit does not change those of CIFAR-10.
    assert {**said["data"], "short_side": None} == {**own["data"], "short_side": None}
    assert [step for step in said["eval_transforms"] if step not in own["eval_transforms"]] == [
        {"size": 32, "kind": "center-crop"}
    ]


@pytest.mark.slow
@pytest.mark.skipif("CRUCIFORM_DATA" not in os.environ, reason="CRUCIFORM_DATA is not set: real CIFAR-10 is needed")
@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_network_is_as_accurate_as_its_card_says(name: str) -> None:
    judged = evaluate(MODELS / name, recipe=f"{name}_cifar10", changes=("precision=fp32",)).evaluation
    promised = re.findall(r"[\d.]+(?=%)", entry(name, "test accuracy"))
    found = [judged.top1, judged.top1_flip_tta][: len(promised)]
    # Engines sum in different orders: a few of 10,000 images may fall on the other side.
    assert [100 * share for share in found] == pytest.approx([float(number) for number in promised], abs=0.05)
