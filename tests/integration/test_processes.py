"""Several real processes: torchrun's and Ray's, one of them killed, compared with one that works alone."""

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from torch import Tensor

from cruciform.training.run.journal import read_journal
from cruciform.training.run.run import Run

sys.path.insert(0, str(Path(__file__).parent))
from running import SAMPLES, command, finish, samples_of_epochs, wait_for, weights, workers, write_recipe


@pytest.fixture
def recipe(tmp_path: Path) -> Callable[..., Path]:
    return lambda epochs=2: write_recipe(tmp_path, epochs)


def distance(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    names = [name for name in a if name.startswith("model.")]
    one, two = (torch.cat([tensors[name].double().flatten() for name in names]) for tensors in (a, b))
    return float((one - two).norm() / one.norm())


@pytest.mark.slow
def test_two_ranks_equal_one_with_the_same_batch(recipe: Callable[..., Path], tmp_path: Path) -> None:
    finish(command(recipe(), "--run", tmp_path / "one"))
    finish(command(recipe(), "--run", tmp_path / "two", "--backend", "ddp", "--workers", 2))
    assert distance(weights(tmp_path / "one"), weights(tmp_path / "two")) < 1e-5
    figures = [
        [line["top1"] for line in read_journal(tmp_path / name / "log.jsonl") if line["event"] == "epoch"]
        for name in ("one", "two")
    ]
    assert figures[0] == figures[1]


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1], ids=["rank 0", "rank 1"])
def test_torchrun_goes_on_after_a_rank_was_killed(recipe: Callable[..., Path], tmp_path: Path, victim: int) -> None:
    ddp = ("--backend", "ddp", "--workers", 2)
    finish(command(recipe(4), "--run", tmp_path / "whole", *ddp))
    process = command(recipe(4), "--run", tmp_path / "broken", *ddp)
    wait_for(tmp_path / "broken", 8, process)
    ranks = [
        child
        for child in workers(process.pid, b"cruciform")
        if f"\0RANK={victim}\0".encode() in (Path("/proc") / str(child) / "environ").read_bytes()
    ]
    os.kill(ranks[0], signal.SIGKILL)
    assert "connectFullMesh failed" not in finish(process), "the new ranks called the dead ones"
    whole, broken = weights(tmp_path / "whole"), weights(tmp_path / "broken")
    assert all(torch.equal(whole[name], broken[name]) for name in whole)
    assert Run(tmp_path / "broken").status()["starts"] > 1


@pytest.mark.slow
def test_samples_are_seen_once_whatever_the_number_of_ranks(recipe: Callable[..., Path], tmp_path: Path) -> None:
    run = tmp_path / "run"
    for stop, world, number in ((3, 2, signal.SIGHUP), (10, 1, signal.SIGTERM), (None, 2, None)):
        backend = ("--backend", "ddp", "--workers", world) if world > 1 else ()
        process = command(recipe(3), "--run", run, "--resume", *backend)
        if stop:
            wait_for(run, stop, process)
            process.send_signal(number)
            output, _ = process.communicate(timeout=120)
            assert process.returncode == 128 + number, output
            assert output.count("Resume with") == 1, "told once, and not by every rank"
            assert f"--workers {world}" in output or world == 1
        else:
            finish(process)
    worlds = [line["world"] for line in read_journal(run / "log.jsonl") if line["event"] == "start"]
    assert worlds == [2, 1, 2]
    for seen in samples_of_epochs(run, 3, -(-SAMPLES // 16)):
        assert seen == Counter(range(SAMPLES))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ray_goes_on_after_a_worker_was_killed(recipe: Callable[..., Path], tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = command(recipe(6), "--run", run, "--backend", "ray", "--workers", 2)
    wait_for(run, 15, process)
    servers = [one for mark in (b"gcs_server", b"raylet", b"ray::") for one in workers(process.pid, mark)]
    # The training processes themselves have torch's store, which knows no address to bind to.
    assert not reachable_places(sorted(set(servers) - set(workers(process.pid, b"ray::RayTrainWorker"))))
    assert len(servers) > 3
    ray_workers = workers(process.pid, b"ray::RayTrainWorker")
    os.kill(ray_workers[-1], signal.SIGKILL)
    finish(process, timeout=400)
    status = Run(run).status()
    assert (status["state"], status["epochs"]) == ("done", 6)
    starts = [line["step"] for line in read_journal(run / "log.jsonl") if line["event"] == "start"]
    assert len(starts) >= 2
    assert starts[-1] >= 12, "it went on from a registered checkpoint, not from the start"
    for seen in samples_of_epochs(run, 6, -(-SAMPLES // 16)):
        assert seen == Counter(range(SAMPLES))


def reachable_places(processes: list[int]) -> set[str]:
    """Returns where these processes listen that is not the loopback."""
    loopback = ("0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000")
    places = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[1].partition(":")[0] not in loopback:
                places[f"socket:[{words[9]}]"] = words[1]
    found = set()
    for process in processes:
        for file in (Path("/proc") / str(process) / "fd").iterdir():
            with suppress(OSError):
                found |= {places[name]} if (name := str(file.readlink())) in places else set()
    return found
