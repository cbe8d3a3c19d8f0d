"""Real processes side by side: what all of them must agree on, whichever of them met it."""

import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from cruciform.api.evaluate import evaluate
from cruciform.data.samples.source import ArraySource, Sample
from cruciform.errors import BadSampleError, CruciformError
from cruciform.training.engine.learner import Learner
from cruciform.training.engine.loop import train
from cruciform.training.recipe.cookbook import load_recipe
from cruciform.training.run.journal import read_journal
from cruciform.training.run.run import Run
from cruciform.training.runtime.runtime import Distributed, SingleProcess
from cruciform.training.setup.recipe_network import build_model

pytestmark = pytest.mark.slow  # every process begins by importing torch
SAMPLES = 40  # of the training set, see conftest
SMALL = ["model.options.widths=[8, 8, 8]", "epochs=2", "batch_size=16", "log.tensorboard=false", "precision=fp32"]


def agree(runtime: Distributed, folder: Path, *_: str) -> Any:
    tensor = torch.full((2, 3), float(runtime.rank + 1)).t()  # strided otherwise than its values are sent
    runtime.share_([tensor])
    return [runtime.gather([runtime.rank, "ä" * 3 * runtime.rank]), tensor.tolist()]


def learn(runtime: Distributed, folder: Path, *changes: str) -> Any:
    try:
        train(load_recipe("cifar_fast_cifar10", changes), Run(folder / "run"), runtime)
    except CruciformError as error:
        return type(error).__name__
    return "done"


def learn_without_one(runtime: Distributed, folder: Path, *changes: str) -> Any:
    """The first training sample that the last rank reads can't be read, by this rank."""
    real, lost = ArraySource.__getitem__, list[int]()

    def read(self: ArraySource, index: int) -> Sample:
        if len(self) == SAMPLES and index == (lost or [index])[0]:
            lost[:] = [index]
            raise BadSampleError(index, "here", "gone")
        return real(self, index)

    if runtime.rank == runtime.world - 1:
        ArraySource.__getitem__ = read  # type: ignore[method-assign]
    return learn(runtime, folder, *changes)


SCENES: dict[str, tuple[Any, int, list[str]]] = {  # what is done, by how many, and with which changes to the recipe
    "agreed": (agree, 2, []),
    "learnt": (learn, 2, []),
    "one process": (learn, 1, []),
    "one lost": (learn_without_one, 2, ["data.max_bad=0.05"]),
    "none may be lost": (learn_without_one, 2, []),
}


def play(scene: str, rank: int, folder: Path, data: str) -> None:
    """One process of a scene; leaves what it came to in a file."""
    work, world, changes = SCENES[scene]
    store = dist.FileStore(str(folder / "store"), world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    came_to = work(Distributed(torch.device("cpu")), folder, *SMALL, f"data.path={data}", *changes)
    (folder / f"{rank}.json").write_text(json.dumps(came_to))
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def stage(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All scenes, played. One process imports all there is to import, and divides; not this one, which has threads."""
    folder = tmp_path_factory.mktemp("stage")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    played = subprocess.run(
        [sys.executable, __file__, str(folder), str(data)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert played.returncode == 0, played.stderr[-2000:]
    return folder


def came_to(stage: Path, scene: str) -> list[Any]:
    return [json.loads((stage / scene / f"{rank}.json").read_text()) for rank in range(SCENES[scene][1])]


def test_all_get_what_each_has_and_what_the_leader_has(stage: Path) -> None:
    for gathered, shared in came_to(stage, "agreed"):
        assert gathered == [0, "", 1, "äää"]
        assert shared == [[1.0, 1.0]] * 3


def test_the_network_that_is_judged_is_the_one_that_is_saved(stage: Path) -> None:
    """Statistics of batch norms differ between ranks: a share judged with others would be a network of nobody's."""
    assert came_to(stage, "learnt") == ["done", "done"]
    run = stage / "learnt" / "run"
    logged = [line for line in read_journal(run / "log.jsonl") if line["event"] == "epoch"][-1]
    assert logged["loss"] == pytest.approx(evaluate(run).evaluation.loss, rel=1e-5)


def test_one_process_under_a_launcher_may_freeze_parameters_on_its_way(stage: Path) -> None:
    """torch's wrapper waits for every gradient that there was when it was made, however few processes there are."""
    assert came_to(stage, "one process") == ["done"]


def test_a_sample_that_only_the_last_rank_met_is_listed_and_counted(stage: Path) -> None:
    assert came_to(stage, "one lost") == ["done", "done"]
    log = read_journal(stage / "one lost" / "run" / "log.jsonl")
    assert [line["message"] for line in log if line["event"] == "notice"] == [
        "skipped an unreadable sample: here: gone"
    ]
    assert came_to(stage, "none may be lost") == ["DataError", "DataError"]
    assert "1 of 40 samples can't be read" in Run(stage / "none may be lost" / "run").status()["reason"]


if __name__ == "__main__":
    made = load_recipe("cifar_fast_cifar10", SMALL)
    Learner(made, build_model(made.model, classes=10, seed=0), SingleProcess(torch.device("cpu")))  # imports, too
    fork = multiprocessing.get_context("fork")
    for name, (_, many, _) in SCENES.items():
        place = Path(sys.argv[1]) / name
        place.mkdir()
        actors = [fork.Process(target=play, args=(name, rank, place, sys.argv[2])) for rank in range(many)]
        for actor in actors:
            actor.start()
        for actor in actors:
            actor.join()
