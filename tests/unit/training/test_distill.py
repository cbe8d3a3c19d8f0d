"""A network that learns from another one, its teacher."""

import copy
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import cruciform
from cruciform.data.loader import Batch
from cruciform.errors import RecipeError, RunError, ShapeError
from cruciform.training.engine.learner import Learner
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.runtime.runtime import SingleProcess
from cruciform.training.tables.distill_table import DistillTable


def network(seed: int = 0, classes: int = 10) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(3, 4, 3, stride=4), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(256, classes))


@pytest.fixture
def batch() -> Batch:
    images = torch.randint(0, 256, (12, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return Batch(images, torch.arange(12) % 10, list(range(12)), 12, 12, ())


def losses(recipe: Recipe, model: nn.Module, batch: Batch, teacher: nn.Module | None) -> float:
    learner = Learner(recipe, copy.deepcopy(model), SingleProcess(torch.device("cpu")), teacher=teacher)
    return learner.step(batch, 0, 1.0).loss


def test_the_loss_is_the_divergence_and_its_gradient_keeps_its_size() -> None:
    generator = torch.Generator().manual_seed(0)
    logits, teacher = (torch.randn(5, 7, generator=generator, dtype=torch.float64) for _ in range(2))
    found = cruciform.distillation_losses(logits, teacher)
    p, q = teacher.softmax(1), logits.softmax(1)
    torch.testing.assert_close(found, (p * (p / q).log()).sum(1).float(), rtol=1e-5, atol=1e-6)
    assert float(cruciform.distillation_losses(teacher, teacher, 3.0).abs().max()) < 1e-6
    sizes = []
    for temperature in (20.0, 40.0):  # where the divergence is nearly a square, T² cancels
        logits = logits.detach().requires_grad_()
        cruciform.distillation_losses(logits, teacher, temperature).sum().backward()
        assert logits.grad is not None
        sizes.append(float(logits.grad.norm()))
    assert sizes[0] == pytest.approx(sizes[1], rel=0.1)


def test_labels_and_teacher_are_mixed_by_weight(make: Any, batch: Batch) -> None:
    model, teacher = network(0), network(1).train()
    by_labels = losses(make(), model, batch, None)
    found = {
        weight: losses(make(distill={"weight": weight}), model, batch, teacher) for weight in (0.25, 0.5, 1.0)
    }  # fmt: skip
    assert found[0.5] == pytest.approx((by_labels + found[1.0]) / 2, rel=1e-5)
    assert found[0.25] == pytest.approx(0.75 * by_labels + 0.25 * found[1.0], rel=1e-5)


def test_the_teacher_is_evaluated_and_never_changed(make: Any, batch: Batch) -> None:
    teacher = network(1)
    before = copy.deepcopy(teacher.state_dict())
    recipe = make(distill={"weight": 1.0})
    learner = Learner(recipe, network(0), SingleProcess(torch.device("cpu")), teacher=teacher)
    for number in range(3):
        learner.step(batch, number, 1.0)
    assert teacher.training  # a copy teaches
    assert all(parameter.requires_grad and parameter.grad is None for parameter in teacher.parameters())
    assert teacher.get_parameter("0.weight").is_contiguous()
    assert all(torch.equal(tensor, before[name]) for name, tensor in teacher.state_dict().items())
    assert not any("teacher" in name for name in learner.state()[0])


def test_a_teacher_of_other_classes_is_refused(make: Any, batch: Batch) -> None:
    with pytest.raises(ShapeError, match="the teacher has 7 outputs, the network that learns from it 10"):
        losses(make(distill={}), network(0), batch, network(1, classes=7))


def test_a_run_teaches_and_is_kept(make: Any, dense: Path, tmp_path: Path) -> None:
    """Stopped after an epoch and resumed without the teacher's own directory, the weights have the same bits."""
    teacher = tmp_path / "teacher"
    shutil.copytree(dense, teacher)
    student = {"name": "cifar_fast", "options": {"widths": [8, 8, 8]}}
    recipe = make(model=student, epochs=2, distill={"teacher": str(teacher), "weight": 0.7})
    whole = cruciform.train(recipe, tmp_path / "whole").state_dict()

    class Stop(cruciform.Observer):
        def on_epoch(self, *words: Any) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cruciform.train(recipe, tmp_path / "stopped", observers=[Stop()])
    shutil.rmtree(teacher)
    resumed = cruciform.train(tmp_path / "stopped", tmp_path / "stopped").state_dict()
    assert all(torch.equal(tensor, resumed[name]) for name, tensor in whole.items())
    plain = cruciform.train(recipe.model_copy(update={"distill": None}), tmp_path / "plain").state_dict()
    assert any(not torch.equal(tensor, plain[name]) for name, tensor in whole.items())


def test_a_teacher_of_ones_own_is_known_again(make: Any, tmp_path: Path) -> None:
    recipe = make(epochs=1)
    cruciform.distill(recipe, tmp_path / "run", model=network(0), teacher=network(1))
    with pytest.raises(RunError, match=r"with its own teacher.*cruciform.distill\(RUN, RUN, teacher="):
        cruciform.train(tmp_path / "run", tmp_path / "run", model=network(0))
    with pytest.raises(RunError, match="distill.python_object was Sequential"):
        cruciform.distill(tmp_path / "run", tmp_path / "run", model=network(0), teacher=network(2))
    cruciform.distill(tmp_path / "run", tmp_path / "run", model=network(0), teacher=network(1))


def test_what_is_no_teacher_is_refused(make: Any, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="neither a model directory nor a run"):
        cruciform.train(make(distill={"teacher": "nin"}), tmp_path / "a", model=network())
    with pytest.raises(RecipeError, match="distill has no teacher"):
        cruciform.train(make(distill={}), tmp_path / "b", model=network())
    named = make().model_copy(update={"distill": DistillTable(teacher="somewhere")})
    with pytest.raises(RecipeError, match="leave out one"):
        cruciform.distill(named, tmp_path / "c", model=network(), teacher=network())
