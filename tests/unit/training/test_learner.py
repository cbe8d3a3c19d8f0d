"""What a network in training may look like, and what a step does when a number in it is none."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cruciform.data.loader import Batch
from cruciform.errors import ShapeError
from cruciform.training.engine.freeze import Freeze
from cruciform.training.engine.learner import Learner, Outcome
from cruciform.training.engine.loop import train
from cruciform.training.recipe.python_objects import PythonObjects
from cruciform.training.run.checkpoint import Checkpoints
from cruciform.training.run.journal import read_journal
from cruciform.training.run.run import Run
from cruciform.training.runtime.runtime import SingleProcess

HERE = SingleProcess(torch.device("cpu"))


def batch(count: int = 8, *, ruined: bool = False) -> Batch:
    images = torch.rand(count, 8, 8, 3, generator=torch.Generator().manual_seed(0)).permute(
        0, 3, 1, 2
    )  # as the loader stacks
    if ruined:
        images[0, 0, 0, 0] = math.nan
    return Batch(images, torch.arange(count) % 10, tuple(range(count)), counted=count, total=count)


class Mixed(nn.Module):
    """Tensors of all ranks in one network, among them a mask of −∞, which is never finite and as it should be."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(144, 10)
        self.register_buffer("volume", torch.zeros(1, 2, 3, 4, 5))
        self.register_buffer("mask", torch.tensor([0.0, -math.inf]))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(self.conv(x)).flatten(1))
        return logits


def test_every_tensor_is_laid_out_by_its_own_rank(make: Any) -> None:
    model = Learner(make(), Mixed(), HERE).model
    assert isinstance(model, Mixed)
    assert model.conv.weight.is_contiguous(memory_format=torch.channels_last)
    assert model.volume.is_contiguous(memory_format=torch.channels_last_3d)


def test_gradients_come_in_the_strides_of_their_weights(make: Any) -> None:
    # or DistributedDataParallel copies them into its buckets one by one, and warns of it
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.Conv2d(8, 6, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 10)
    )
    learner = Learner(make(), model, HERE)
    came: dict[str, tuple[int, ...]] = {}
    for name, weight in learner.model.named_parameters():
        weight.register_hook(lambda gradient, name=name: came.update({name: gradient.stride()}))
    learner.step(batch(16), 0, 1.0)  # with fewer, and one thread, another implementation takes the 1×1 layer
    assert came == {name: weight.stride() for name, weight in learner.model.named_parameters()}


def test_among_processes_images_that_do_not_fit_are_told_rather_than_tried_again(make: Any) -> None:
    class Wrapping(SingleProcess):
        def wrap(self, model: nn.Module) -> nn.Module:
            return nn.Sequential(model)

    model = nn.Sequential(nn.Flatten(), nn.Linear(1000, 10))
    with pytest.raises(
        ShapeError, match=r"the test's own does not run on a batch of shape \(8, 3, 8, 8\): mat1 and mat2"
    ):
        Learner(make(), model, Wrapping(torch.device("cpu"))).step(batch(), 0, 1.0)


@pytest.mark.parametrize("given", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_weights_are_kept_in_32_bits_however_they_come(make: Any, given: torch.dtype, precision: str) -> None:
    learner = Learner(make(precision=precision), Mixed().to(given), HERE)
    learner.step(batch(), 0, 1.0)
    assert {tensor.dtype for tensor in learner.state()[0].values() if tensor.is_floating_point()} == {torch.float32}


def test_a_buffer_that_never_was_finite_is_saved_and_one_that_has_become_so_is_not(make: Any, tmp_path: Path) -> None:
    learner = Learner(make(), Mixed(), HERE)
    assert learner.never_finite == {"model.mask", "ema.mask"}
    tensors, _ = learner.state()
    Checkpoints(tmp_path).save(1, tensors, {}, never_finite=learner.never_finite)
    tensors["model.norm.running_mean"].fill_(math.nan)
    with pytest.raises(ArithmeticError, match="running_mean has NaN or Inf after step 2"):
        Checkpoints(tmp_path).save(2, tensors, {}, never_finite=learner.never_finite)


def test_a_mask_is_neither_averaged_nor_followed(make: Any, tmp_path: Path) -> None:
    learner = Learner(make(ema=0.9, lookahead={"k": 1}), Mixed(), HERE)
    for number in range(3):
        learner.step(batch(), number, 1.0, steps=3)
    judged = learner.evaluated()
    assert judged is not learner.model
    for network in (learner.model, judged):
        assert torch.equal(network.get_buffer("mask"), torch.tensor([0.0, -math.inf]))
    tensors, _ = learner.state()
    Checkpoints(tmp_path).save(1, tensors, {}, never_finite=learner.never_finite)


@pytest.mark.parametrize("policy", ["stop", "skip"])
def test_in_16_bits_a_loss_that_is_no_number_is_no_matter_of_scale(make: Any, policy: str) -> None:
    learner = Learner(make(precision="fp16", nan_policy=policy), Mixed(), HERE)
    assert learner.step(batch(ruined=True), 0, 1.0).outcome is Outcome.FAILED
    assert isinstance(learner.model, Mixed)
    assert torch.isfinite(learner.model.norm.running_mean).all(), "the batch was not learnt from, nor its statistics"


def test_slow_weights_are_the_result_also_where_the_last_step_is_not_taken(make: Any) -> None:
    model = Mixed()
    del model.mask
    learner = Learner(make(nan_policy="skip", lookahead={}), model, HERE)
    learner.step(batch(), 0, 1.0, steps=2)
    learner.step(batch(ruined=True), 1, 1.0, steps=2)
    assert learner.lookahead
    for name, slow in learner.lookahead.slow.items():
        assert torch.isfinite(slow).all()
        assert torch.equal(slow, learner.model.state_dict()[name])


def test_steps_that_overflow_are_told(make: Any, tmp_path: Path) -> None:
    """The scale that torch starts with is too large for gradients of images this bright."""
    recipe = make(precision="fp16", epochs=1, data={**make().data.model_dump(), "std": [0.01]})
    model = nn.Sequential(nn.Flatten(), nn.Linear(3072, 10))
    train(recipe, Run(tmp_path / "run"), HERE, inputs=PythonObjects(model=model))
    notices = [line["message"] for line in read_journal(tmp_path / "run" / "log.jsonl") if line["event"] == "notice"]
    assert any("step 1 was not taken: the gradient overflowed at this loss scale" in what for what in notices)


def test_what_its_maker_froze_stays_frozen(make: Any) -> None:
    model = Mixed()
    model.conv.bias.requires_grad_(False)
    freeze = Freeze(model, {"*.bias": 0.5})
    freeze.skip_gradients_(0.1)
    assert not model.conv.bias.requires_grad
    assert model.head.bias.requires_grad
    freeze.skip_gradients_(0.9)
    assert not model.head.bias.requires_grad
