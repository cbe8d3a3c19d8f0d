"""The area under the ROC curve against counting pairs, which is what it means."""

import itertools
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import nn

from cruciform.training.engine.auc import area_under_curve
from cruciform.training.engine.loop import train
from cruciform.training.recipe.python_objects import PythonObjects
from cruciform.training.run.journal import read_journal
from cruciform.training.run.run import Run
from cruciform.training.runtime.runtime import SingleProcess


def by_pairs(scores: torch.Tensor, positive: torch.Tensor) -> float:
    pairs = list(itertools.product(scores[positive].tolist(), scores[~positive].tolist()))
    return sum(1.0 if more > less else 0.5 if more == less else 0.0 for more, less in pairs) / len(pairs)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 2)), min_size=4, max_size=40))
def test_it_is_the_chance_that_a_pair_is_in_order(samples: list[tuple[int, int]]) -> None:
    labels = torch.tensor([label for _, label in samples])
    score = torch.tensor([float(score) for score, _ in samples])
    scores = torch.stack([score, -score, score.sin()], 1)
    if len(labels.unique()) < 3:
        assert area_under_curve(scores, labels) is None
    else:
        expected = sum(by_pairs(scores[:, number], labels == number) for number in range(3)) / 3
        assert area_under_curve(scores, labels) == pytest.approx(expected)


def test_of_two_classes_the_second_counts() -> None:
    labels = torch.tensor([0, 0, 1, 1])
    scores = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.65, 0.35], [0.2, 0.8]])
    assert area_under_curve(scores, labels) == 0.75


def test_a_class_without_a_sample_is_told(make: Any, tmp_path: Path) -> None:
    recipe = make(epochs=1, evaluation={"auc": True})  # 8 images, 10 classes
    model = nn.Sequential(nn.Flatten(), nn.Linear(3072, 10))
    train(recipe, Run(tmp_path), SingleProcess(torch.device("cpu")), resume=False, inputs=PythonObjects(model=model))
    (notice,) = [line["message"] for line in read_journal(tmp_path / "log.jsonl") if "ROC" in line.get("message", "")]
    assert notice.startswith("the area under the ROC curve is undefined: the data has no sample of class airplane or ")
