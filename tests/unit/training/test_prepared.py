"""Images of a run as its network is given them: the same that a judge would give it, one by one."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from cruciform.data.loader import Loader
from cruciform.data.order import Order
from cruciform.data.samples.source import ArraySource, Sample
from cruciform.errors import BadSampleError
from cruciform.training.engine.learner import Learner
from cruciform.training.engine.sample_images import _batches, first_images, prepared_batches, sample_images
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.run.run import Run
from cruciform.training.runtime.runtime import SingleProcess
from cruciform.training.setup.recipe_data import open_datasets
from cruciform.training.tables.table import read_table

ALONE = SingleProcess(torch.device("cpu"))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    folder = tmp_path / "cifar"
    folder.mkdir()
    numbers = np.random.default_rng(0)
    for name in (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"):
        records = numbers.integers(0, 256, (8, 3073), dtype=np.uint8)
        records[:, 0] %= 10
        (folder / f"{name}.bin").write_bytes(records.tobytes())
    recipe = read_table(
        Recipe,
        {
            "model": {"name": "the test's own"},
            "data": {"kind": "cifar10", "path": str(folder), "mean": [100, 120, 140], "std": [50, 60, 70]},
            "train_transforms": [{"kind": "random-crop", "size": 28}, {"kind": "hflip"}],
            "eval_transforms": [{"kind": "center-crop", "size": 28}],
            "optimizer": {"kind": "sgd", "lr": 0.01},
            "epochs": 1,
            "batch_size": 8,
        },
        "test",
    )
    made = Run(tmp_path / "run")
    made.prepare(recipe, resume=False)
    return made


def test_the_network_of_a_judge_is_given_the_same(run: Run) -> None:
    recipe = run.recipe()
    seen: list[torch.Tensor] = []

    class Watcher(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(x)
            return x.flatten(1)

    test = open_datasets(recipe.data, ALONE).test
    learner = Learner(recipe, Watcher(1, 1), ALONE)
    batches = list(prepared_batches(run.directory, "test", batch=5))
    assert [len(batch.labels) for batch in batches] == [5, 3]
    for step, batch in enumerate(batches):
        judged = Loader(test, Order(len(test), 5), recipe.eval_transforms).read(step)
        learner.logits(judged)
        assert np.array_equal(batch.images, seen[-1].numpy())
        assert np.array_equal(batch.labels, judged.labels.numpy())


def test_samples_that_cannot_be_read_are_left_out_as_far_as_the_recipe_allows(run: Run) -> None:
    @dataclass(frozen=True)
    class Torn(ArraySource):
        def __getitem__(self, index: int) -> Sample:
            if index == 4:
                raise BadSampleError(index, self.describe(index), "is torn")
            return super().__getitem__(index)

    images = np.arange(12, dtype=np.uint8).reshape(12, 1, 1, 1).repeat(32, 1).repeat(32, 2).repeat(3, 3)
    source = Torn(images, np.arange(12) % 2, ("a", "b"))
    recipe = run.recipe()
    with pytest.raises(BadSampleError, match="sample 4: is torn"):
        list(_batches(recipe, source, 4, max_bad=0.0))
    for size in (1, 4):
        labels = [int(label) for batch in _batches(recipe, source, size, max_bad=0.1) for label in batch.labels]
        assert labels == [0, 1, 0, 1, 1, 0, 1, 0, 1, 0, 1]
    assert len(first_images(recipe, source, 8)) == 7


def test_samples_are_from_all_over_the_training_images_without_chance(run: Run) -> None:
    images = sample_images(run.directory, 12)
    assert images.shape == (12, 3, 28, 28)
    assert images.dtype == np.float32
    assert images.flags.c_contiguous
    train = open_datasets(run.recipe().data, ALONE).train
    for place, number in ((0, 1), (11, 38)):  # the middles of twelve equal parts of 40
        image = train[number].image[2:30, 2:30].astype(np.float32)
        assert np.allclose(images[place], ((image - [100, 120, 140]) / [50, 60, 70]).transpose(2, 0, 1), atol=1e-5)
    assert np.array_equal(images, sample_images(run.directory, 12))
    assert len(sample_images(run.directory, 1000)) == 40, "all there are"
