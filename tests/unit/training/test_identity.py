"""A run resumes from its own checkpoints, by its own recipe, on its own data; other conditions are told."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from cruciform.errors import CheckpointError, CruciformError, DataError, NonFiniteError, RunError
from cruciform.files import read_manifest
from cruciform.training.engine.loop import train
from cruciform.training.recipe.python_objects import PythonObjects
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.run.checkpoint import load
from cruciform.training.run.journal import read_journal
from cruciform.training.run.observer import Observer, StepRecord
from cruciform.training.run.run import ID, Run
from cruciform.training.runtime.runtime import SingleProcess

RECORD = 3073
HALF = 6
"""A step at which runs of 3 epochs, 3 steps each, are stopped."""


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(3072, 10))


class Stop(Observer):
    """Ends a run as a kill would: without a word to it."""

    def on_step(self, record: StepRecord) -> None:
        if record.step == HALF + 1:
            raise KeyboardInterrupt


def go(recipe: Recipe, run: Path, *observers: Observer, model: nn.Module | None = None, **given: Any) -> None:
    inputs = PythonObjects(model=model or network(), **given)
    train(recipe, Run(run), SingleProcess(torch.device("cpu")), resume=True, observers=observers, inputs=inputs)


def begin(recipe: Recipe, run: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        go(recipe, run, Stop())


def weights(run: Path) -> dict[str, Tensor]:
    checkpoint, _ = Run(run).checkpoints().load_newest()
    assert checkpoint is not None
    return checkpoint.tensors


def equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def newest(run: Path) -> Path:
    return max((run / "checkpoints").glob("step-*"))


def notices(run: Path) -> list[str]:
    return [line["message"] for line in read_journal(run / "log.jsonl") if line["event"] == "notice"]


def rewrite(run: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Changes the values of a run's newest checkpoint, as an older version or another machine would have them."""
    found = load(newest(run))
    change(found.values)
    shutil.rmtree(found.path)
    Run(run).checkpoints(keep=9).save(found.step, found.tensors, found.values)


@pytest.fixture
def own_data(data: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(data, tmp_path / "data"))


@pytest.fixture
def own(make: Any, own_data: Path) -> Recipe:
    made: Recipe = make(data={"kind": "cifar10", "path": str(own_data), "threads": 1})
    return made


def change_files(folder: Path, pattern: str, change: Callable[[Any], Any]) -> None:
    for path in folder.glob(pattern):
        records = np.fromfile(path, np.uint8).reshape(-1, RECORD)
        path.write_bytes(change(records.copy()).tobytes())


def invert_pixels(records: Any) -> Any:
    records[:, 1:] = 255 - records[:, 1:]
    return records


def change_labels(records: Any) -> Any:
    records[:, 0] = 9 - records[:, 0]
    return records


def reverse(records: Any) -> Any:
    return records[::-1]


@pytest.mark.parametrize("change", [invert_pixels, change_labels, reverse])
@pytest.mark.parametrize(
    ("pattern", "split"),
    [("data_batch_*", "training data"), ("data_batch_3*", "training data"), ("test_*", "test data")],
)
def test_a_run_refuses_other_data_of_the_same_size(
    own: Recipe, own_data: Path, tmp_path: Path, change: Any, pattern: str, split: str
) -> None:
    begin(own, tmp_path / "run")
    change_files(own_data, pattern, change)
    with pytest.raises(DataError, match=rf"is not what this run was trained on \({split}: .*data.path set to"):
        go(own, tmp_path / "run")


def test_the_error_says_which_samples_differ_and_whether_labels_do(own: Recipe, own_data: Path, tmp_path: Path) -> None:
    begin(own, tmp_path / "run")
    change_files(own_data, "data_batch_2*", invert_pixels)
    with pytest.raises(DataError, match="8 of 40 compared samples differ, the first: sample 8") as error:
        go(own, tmp_path / "run")
    assert "labels" not in str(error.value)
    change_files(own_data, "data_batch_2*", change_labels)
    with pytest.raises(DataError, match="its labels differ, 8 of 40"):
        go(own, tmp_path / "run")


def test_data_that_is_brought_back_is_taken_wherever_it_is(
    make: Any, own: Recipe, own_data: Path, tmp_path: Path
) -> None:
    go(own, tmp_path / "whole")
    begin(own, tmp_path / "run")
    own_data.rename(tmp_path / "elsewhere")
    go(make(data={"kind": "cifar10", "path": str(tmp_path / "elsewhere"), "threads": 1}), tmp_path / "run")
    assert equal(weights(tmp_path / "run"), weights(tmp_path / "whole"))


def test_whitened_data_is_told_by_what_it_was_whitened_from(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whitened images differ in their last bits between machines; the images that they were made of do not."""
    from cruciform.data.transforms import whitening

    numbers, small = np.random.default_rng(0), nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    arrays = {f"{split}_images": numbers.integers(0, 256, (40, 4, 4, 4), np.uint8) for split in ("train", "test")}
    labels = {f"{split}_labels": np.arange(40) % 2 for split in ("train", "test")}
    np.savez(tmp_path / "volumes.npz", **arrays, **labels)
    made = make(data={"kind": "volumes", "path": str(tmp_path / "volumes.npz"), "whiten": {}}, epochs=1)
    monkeypatch.setenv("CRUCIFORM_CACHE", str(tmp_path / "cache"))
    go(made, tmp_path / "run", model=small)
    for path in (tmp_path / "cache").rglob("*.npy"):
        path.unlink()
    real = whitening.fit_zca
    monkeypatch.setattr(whitening, "fit_zca", lambda *given: (real(*given)[0], real(*given)[1] * np.float32(1 + 1e-6)))
    go(made, tmp_path / "run", model=small)
    np.savez(tmp_path / "volumes.npz", **{name: 255 - images for name, images in arrays.items()}, **labels)
    with pytest.raises(DataError, match="40 of 40 compared samples differ"):
        go(made, tmp_path / "run", model=small)


@pytest.mark.parametrize(("seed", "also"), [(0, False), (1, True)])
def test_a_checkpoint_of_another_run_is_refused(make: Any, tmp_path: Path, seed: int, also: bool) -> None:
    begin(make(), tmp_path / "run")
    go(make(seed=seed), tmp_path / "other")
    foreign = newest(tmp_path / "other")
    shutil.copytree(foreign, tmp_path / "run" / "checkpoints" / foreign.name)
    with pytest.raises(RunError, match="belongs to another run") as error:
        go(make(), tmp_path / "run")
    assert ("seed was 1, now 0" in str(error.value)) == also
    assert "Delete it" in str(error.value)
    shutil.rmtree(tmp_path / "run" / "checkpoints" / foreign.name)
    go(make(), tmp_path / "run")


def test_a_given_checkpoint_of_another_run_is_refused_too(make: Any, tmp_path: Path) -> None:
    """As Ray gives copies of checkpoints."""
    begin(make(), tmp_path / "run")
    go(make(), tmp_path / "other")
    copy = shutil.copytree(newest(tmp_path / "other"), tmp_path / "copy")
    with pytest.raises(RunError, match="belongs to another run"):
        go(make(), tmp_path / "run", start=Path(copy))


def test_rolling_back_to_a_checkpoint_of_another_run_is_refused(make: Any, tmp_path: Path) -> None:
    class Poison(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = super().forward(x)
            return result * float("nan") if poisoned and self.training else result

    class Swap(Observer):
        def on_step(self, record: StepRecord) -> None:
            if record.step == HALF + 1:
                shutil.copytree(newest(tmp_path / "other"), tmp_path / "run" / "checkpoints" / "step-00000009")
                poisoned.append(True)

    poisoned: list[bool] = []
    go(make(), tmp_path / "other")
    with pytest.raises(RunError, match="belongs to another run"):
        go(make(nan_policy="rollback"), tmp_path / "run", Swap(), model=Poison(*network()))
    with pytest.raises(NonFiniteError):  # what it would have come to
        go(make(), tmp_path / "third", model=Poison(*network()))


def edit(run: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = run / "recipe.json"
    recipe = json.loads(path.read_text())
    change(recipe)
    path.write_text(json.dumps(recipe))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda recipe: recipe.update(seed=7), "seed was 0, now 7"),
        (lambda recipe: recipe.update(epochs=4), "epochs was 3, now 4"),
        (lambda recipe: recipe["optimizer"].update(lr=0.5), "optimizer.lr was 0.01, now 0.5"),
        (lambda recipe: recipe.update(train_transforms=[]), "train_transforms was"),
    ],
)
def test_a_recipe_that_was_edited_in_the_run_is_refused_by_its_keys(
    make: Any, tmp_path: Path, change: Any, told: str
) -> None:
    begin(make(), tmp_path / "run")
    edit(tmp_path / "run", change)
    with pytest.raises(RunError, match=f"is not the recipe that .*step-0000000{HALF} was computed with .{told}"):
        go(Run(tmp_path / "run").recipe(), tmp_path / "run")


def test_what_may_change_of_a_recipe_may_be_edited(make: Any, tmp_path: Path) -> None:
    go(make(), tmp_path / "whole")
    begin(make(), tmp_path / "run")
    edit(tmp_path / "run", lambda recipe: recipe["log"].update(steps=7))
    go(Run(tmp_path / "run").recipe(), tmp_path / "run")
    assert equal(weights(tmp_path / "run"), weights(tmp_path / "whole"))


def test_a_run_of_an_older_version_goes_on_with_a_notice(make: Any, tmp_path: Path) -> None:
    go(make(), tmp_path / "whole")
    begin(make(), tmp_path / "run")
    (tmp_path / "run" / ID).unlink()

    def age(values: dict[str, Any]) -> None:
        del values["run"], values["data"]["train"], values["data"]["test"]

    rewrite(tmp_path / "run", age)
    go(make(), tmp_path / "run")
    assert equal(weights(tmp_path / "run"), weights(tmp_path / "whole"))
    (told,) = notices(tmp_path / "run")
    assert "was written by an older version and does not record its run, recipe and data" in told
    values = load(newest(tmp_path / "run")).values
    assert values["run"]["id"] == Run(tmp_path / "run").id
    go(make(), tmp_path / "run")
    assert len(notices(tmp_path / "run")) == 1, "by now the checkpoints tell"


def test_another_number_of_threads_is_recorded_and_told(make: Any, tmp_path: Path) -> None:
    begin(make(), tmp_path / "run")
    threads = torch.get_num_threads()
    (start,) = [line for line in read_journal(tmp_path / "run" / "log.jsonl") if line["event"] == "start"]
    assert (start["conditions"]["threads"], start["conditions"]["precision"]) == (threads, "fp32")
    rewrite(tmp_path / "run", lambda values: values["run"]["conditions"].update(threads=threads + 1))
    go(make(), tmp_path / "run")
    (told,) = notices(tmp_path / "run")
    assert f"threads was {threads + 1}, now {threads}" in told
    assert f"OMP_NUM_THREADS={threads + 1}" in told
    assert "differ in their last bits" in told
    assert load(newest(tmp_path / "run")).values["run"]["conditions"]["threads"] == threads


def test_a_sample_that_can_not_be_read_now_is_remembered_as_it_was(
    make: Any, own_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Left out of one start, and another one's in the next: that it was exchanged must not be forgotten between."""
    from cruciform.data.samples.source import ArraySource
    from cruciform.errors import BadSampleError

    made = make(data={"kind": "cifar10", "path": str(own_data), "threads": 0, "max_bad": 0.1}, epochs=4)
    begin(made, tmp_path / "run")
    real = ArraySource.__getitem__

    def gone(self: ArraySource, index: int) -> Any:
        if index == 3 and len(self) == 40:
            raise BadSampleError(3, "sample 3", "gone")
        return real(self, index)

    class Later(Observer):
        def on_step(self, record: StepRecord) -> None:
            if record.step == HALF + 4:
                raise KeyboardInterrupt

    monkeypatch.setattr(ArraySource, "__getitem__", gone)
    with pytest.raises(KeyboardInterrupt):
        go(made, tmp_path / "run", Later())
    monkeypatch.undo()
    digests = load(newest(tmp_path / "run")).values["data"]["train"]["digests"]
    assert digests["3"] is not None

    def exchange(records: Any) -> Any:
        records[3] = records[4]
        return records

    change_files(own_data, "data_batch_1*", exchange)
    with pytest.raises(DataError, match="1 of 40 compared samples differ, the first: sample 3"):
        go(made, tmp_path / "run")


@pytest.mark.parametrize(
    "change",
    [
        lambda values: values.update(run=7),
        lambda values: values.update(run={}),
        lambda values: values["run"].update(recipe=[1]),
        lambda values: values["run"].update(id=None),
        lambda values: values["data"]["train"].update(samples="many"),
    ],
)
def test_an_identity_that_no_run_can_have_made_is_refused(make: Any, tmp_path: Path, change: Any) -> None:
    begin(make(), tmp_path / "run")
    rewrite(tmp_path / "run", change)
    with pytest.raises(CruciformError) as error:
        go(make(), tmp_path / "run")
    assert error.type in (CheckpointError, DataError, RunError) or error.type.__name__ == "RecipeError"


@pytest.mark.parametrize(
    "change",
    [
        lambda values: values["run"].update(conditions=[1]),
        lambda values: values["data"]["train"].update(digests="none"),
        lambda values: values["data"]["train"].update(digests={"x": 1, "99": "a", "-1": "b"}),
        lambda values: values["data"].update(train=None),
    ],
)
def test_an_identity_that_tells_less_is_compared_in_what_it_tells(make: Any, tmp_path: Path, change: Any) -> None:
    begin(make(), tmp_path / "run")
    rewrite(tmp_path / "run", change)
    go(make(), tmp_path / "run")


def test_an_identity_is_in_every_checkpoint_and_whole(make: Any, tmp_path: Path) -> None:
    go(make(checkpoint={"steps": 1, "keep": 20}), tmp_path / "run")
    found = sorted((tmp_path / "run" / "checkpoints").iterdir())
    assert len(found) == 9
    for path in found:
        read_manifest(path)
        values = load(path).values
        assert values["run"]["id"] == Run(tmp_path / "run").id
        assert len(values["data"]["train"]["digests"]) == 40
        assert None not in values["data"]["test"]["digests"].values()


def test_a_process_that_finds_other_data_stops_all_of_them(make: Any, tmp_path: Path) -> None:
    class BesideAnother(SingleProcess):
        """A process beside one whose copy of the data has another sample 3."""

        def gather(self, values: Any) -> list[Any]:
            mine = list(values)
            if not (mine and isinstance(mine[0], dict) and "train" in mine[0]):
                return mine
            theirs = json.loads(json.dumps(mine[0]))
            theirs["train"]["digests"]["3"] = "0123456789abcdef"
            return [mine[0], theirs]

    with pytest.raises(DataError, match="process 1 has other training data than process 0: 1 of 40 compared samples"):
        train(make(), Run(tmp_path / "run"), BesideAnother(torch.device("cpu")), inputs=PythonObjects(model=network()))
