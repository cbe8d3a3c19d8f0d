"""Faults around training: shards that are damaged, a store that is flaky, predictions and sweeps that are killed."""

import http.server
import os
import shutil
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fault import Trial, Violation, fault
from PIL import Image as Pillow
from torch import nn
from work import EPOCHS, check_clean, launch, reason, recipe, spawn, wait

from cruciform.data.sets.shards import ShardSource
from cruciform.data.shard_write import list_items, write_shards
from cruciform.data.sharding.shard_options import ShardOptions
from cruciform.data.sharding.storage import open_storage
from cruciform.errors import CruciformError, DataError
from cruciform.training.run.journal import read_journal
from cruciform.training.run.run import Run

IMAGES, SIDE = 120, 8


def small_network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE * SIDE, 3))


def shard_set(shared: Path) -> Path:
    """Returns a folder of images and of shards, which is made when first asked for."""
    folder = shared / "pictures"
    if not folder.exists():
        part = shared / f"pictures-{os.getpid()}"
        numbers = np.random.default_rng(0)
        for split, count in (("train", IMAGES), ("val", 12)):
            for index in range(count):
                path = part / "images" / split / f"class{index % 3}" / f"{index:03d}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Pillow.fromarray(numbers.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)).save(path)
            write_shards(
                list_items(part / "images" / split), part / "shards" / split, ShardOptions(size=1_000, threads=1)
            )
        try:
            part.replace(folder)
        except OSError:
            shutil.rmtree(part)
    return folder


def shard_recipe(folder: Path, max_bad: float) -> Any:
    return recipe(folder, data={"kind": "shards", "path": str(folder), "max_bad": max_bad}, train_transforms=[],
                  loss={}, ema=None)  # fmt: skip


def damage(folder: Path, trial: Trial) -> int:
    """Damages three shards; returns how many."""
    random = trial.random
    tars = sorted((folder / "train").glob("*.tar"))
    victims = random.sample(tars, 3)
    for how, path in enumerate(victims):
        kind = (trial.number + how) % 6
        data = bytearray(path.read_bytes())
        if kind == 0:
            path.unlink()
        elif kind == 1:
            shutil.copy(random.choice([tar for tar in tars if tar not in victims]), path)
        elif kind == 2:
            path.write_bytes(data[: random.randrange(len(data))])
        elif kind == 3:
            path.write_bytes(bytes(len(data)))
        elif kind == 4:
            shutil.copy(sorted((folder / "val").glob("*.tar"))[0], path)
        else:
            data[random.randrange(512, len(data) // 2)] ^= 255
            path.write_bytes(data)
    return len(victims)


@fault("F14 bad shards", 24)
def bad_shards(trial: Trial) -> int:
    """Shards mutated, missing, doubled, of another set: what can be read is, once; the rest is listed, or it stops."""
    folder = trial.folder / "shards"
    shutil.copytree(shard_set(trial.shared) / "shards", folder)
    victims = damage(folder, trial)
    source = ShardSource(open_storage(str(folder / "train")))
    bad = []
    for number in range(len(source)):
        try:
            source.read(number)
        except DataError:
            bad.append(number)
    run = Run(trial.folder / "run")
    allowed = trial.number % 3 > 0 or not bad
    made = shard_recipe(folder, max_bad=0.5 if allowed else 0.0)
    code = wait(launch(made, run, model=small_network))
    if not allowed:
        if code != 4:
            raise Violation("I5", f"ended with {code}, not with 4")
        reason(run, "DataError")
        return victims
    if code:
        raise Violation("I4", f"ended with {code}")
    check_clean(run)
    listed = sum("skipped an unreadable sample" in str(line.get("message")) for line in read_journal(run.log))
    if listed != len(bad):
        raise Violation("I3", f"{len(bad)} samples can't be read, {listed} are listed")
    good = sorted(set(range(IMAGES)) - set(bad))
    seen: list[int] = []
    for file in (run.directory / "samples").iterdir():
        seen += [number for line in read_journal(file) for number in line["numbers"]]
    if sorted(seen) != sorted(good * EPOCHS):
        raise Violation("I3", "an epoch has not seen every sample that can be read once")
    return victims


WAYS = ("500", "429", "short", "long", "wrong", "slow", "reset", "empty", "stale", "refuse")


class Flaky(http.server.SimpleHTTPRequestHandler):
    """Serves files, and misbehaves for some requests."""

    way = "500"
    left = 0
    struck = 0
    protocol_version = "HTTP/1.1"

    def log_message(self, *words: object) -> None:
        """Is quiet."""

    def do_HEAD(self) -> None:
        self._serve(body=False)

    def do_GET(self) -> None:
        self._serve(body=True)

    def _serve(self, *, body: bool) -> None:
        kind = type(self)
        try:
            data = Path(self.translate_path(self.path)).read_bytes()
        except OSError:
            self.send_error(404)
            return
        code = 200
        if (asked := self.headers.get("Range")) and "=" in asked:
            first, _, last = asked.partition("=")[2].partition("-")
            data = data[int(first) : int(last) + 1 if last else None]
            code = 206
        if kind.left and body and ".tar" in self.path:
            kind.left -= 1
            kind.struck += 1
            self._misbehave(kind.way, data)
            return
        self._answer(code, len(data), data if body else b"")

    def _answer(self, code: int, length: int, data: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(length))
        self.send_header("ETag", '"x"')
        self.end_headers()
        self.wfile.write(data)

    def _misbehave(self, way: str, data: bytes) -> None:
        self.close_connection = True
        if way in ("500", "429"):
            self._answer(int(way), 0, b"")
        elif way == "short":
            self._answer(206, len(data), data[: len(data) // 2])
        elif way == "long":
            self._answer(206, len(data) + 7, data + b"surplus")
        elif way in ("wrong", "stale"):
            self._answer(206, len(data), bytes(len(data)) if way == "wrong" else data[::-1])
        elif way == "empty":
            self._answer(206, 0, b"")
        elif way == "slow":
            self._answer(206, len(data), data[:1])
            time.sleep(30)
        elif way == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            self.connection.close()


@fault("F15 a flaky store", 60)
def flaky(trial: Trial) -> int:
    """Samples over HTTP: right, or refused after a bounded number of tries, in a bounded time."""
    folder = shard_set(trial.shared) / "shards" / "train"
    way = WAYS[trial.number % len(WAYS)]
    times = trial.random.choice((1, 2, 3, 10**6))
    ports = trial.folder / "port"

    def serve() -> None:
        os.chdir(folder)
        Flaky.way, Flaky.left = way, times
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Flaky)
        server.daemon_threads = True
        ports.with_suffix(".part").write_text(str(server.server_port))
        ports.with_suffix(".part").replace(ports)
        server.serve_forever()

    server = spawn(serve, trial.folder / "stderr")
    until = time.monotonic() + 10
    while not ports.exists() and time.monotonic() < until:
        time.sleep(0.005)
    if way == "refuse":
        threading.Timer(0.05, lambda: os.kill(server, signal.SIGKILL)).start()

    def read() -> None:
        from cruciform.data.sharding import storage

        storage.FIRST_WAIT, storage.TIMEOUT = 0.01, 1.0  # type: ignore[misc]
        os.environ["CRUCIFORM_CACHE"] = str(trial.folder / "cache")
        here = ShardSource(open_storage(str(folder)))
        there = ShardSource(open_storage(f"http://127.0.0.1:{ports.read_text()}"))
        for number in trial.random.sample(range(IMAGES), 6):
            if there.read(number) != here.read(number):
                raise Violation("I2", f"sample {number} is another one")

    try:
        code = wait(spawn(read, trial.folder / "stderr"), 30)
    finally:
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)
    persistent = times > 3
    if code not in ((0, 4) if persistent or way in ("wrong", "stale", "refuse") else (0,)):
        last = (trial.folder / "stderr").read_text().splitlines()[-1:]
        raise Violation("I5", f"{way}, {times} times: ended with {code}: {last}")
    return 1


def trained(shared: Path) -> Path:
    """Returns a run of a tiny network of the zoo, which is made when first asked for."""
    run = shared / "predictor"
    if not run.exists():
        from cruciform.api.train import train
        from cruciform.training.recipe.cookbook import load_recipe

        part = shared / f"predictor-{os.getpid()}"
        changes = [f'data.path="{shard_set(shared) / "images"}"', "data.kind=folder", "epochs=1", "batch_size=60",
                   "model.options.widths=[4, 4, 4]", "model.options.input_size=32", "log.tensorboard=false",
                   "precision=fp32", "data.short_side=32", 'eval_transforms=[{kind="center-crop", size=32}]',
                   'train_transforms=[{kind="random-crop", size=32}]']  # fmt: skip
        made = load_recipe("cifar_fast_lr_cifar10", changes)
        if wait(spawn(lambda: (torch.set_num_threads(1), train(made, part)), shared / "stderr"), 120):
            raise RuntimeError((shared / "stderr").read_text()[-500:])
        part.replace(run)
    return run


@fault("F17 predictions are killed", 10)
def predictions(trial: Trial) -> int:
    from cruciform.prediction.predict_images import run_prediction
    from cruciform.prediction.predict_rows import PredictionSettings
    from cruciform.prediction.request import Request

    run, images = trained(trial.shared), shard_set(trial.shared) / "images" / "train"
    asking = PredictionSettings(top=2, batch=4, part=4)

    def predict(out: Path) -> None:
        torch.set_num_threads(1)
        run_prediction(Request(str(run), str(images), str(out)), asking)

    whole = trial.folder / "whole.parquet"
    began = time.monotonic()
    if code := wait(spawn(lambda: predict(whole), trial.folder / "stderr")):
        raise RuntimeError(f"{code}: {(trial.folder / 'stderr').read_text()[-300:]}")
    usual = time.monotonic() - began
    out = trial.folder / "out.parquet"
    hits = 0
    for _ in range(4):
        child = spawn(lambda: predict(out), trial.folder / "stderr")
        time.sleep(trial.random.uniform(0.3 * usual, usual))
        os.kill(child, signal.SIGKILL)
        hits += wait(child) < 0
    if code := wait(spawn(lambda: predict(out), trial.folder / "stderr")):
        raise Violation("I4", f"it could not be gone on with: code {code}")
    if out.read_bytes() != whole.read_bytes():
        raise Violation("I2", "the predictions differ from those of a job that was left alone")
    if list(trial.folder.rglob(".part-*")) or (trial.folder / "out.parquet.parts").exists():
        raise Violation("I4", "something is left behind")
    return hits


@fault("F18 a sweep is killed", 12)
def sweep(trial: Trial) -> int:
    """The process of a sweep is killed: no trial is lost or done twice, and the study can be read."""
    from cruciform.training.experiments.sweep import Search, Sweep, run_sweep
    from cruciform.training.recipe.cookbook import load_recipe

    changes = [f'data.path="{trial.shared / "data"}"', "epochs=2", "batch_size=50", "data.holdout=20", "precision=fp32",
               "model.options.widths=[4, 4, 4]", "log.tensorboard=false"]  # fmt: skip
    folder = trial.folder / "sweep"

    def run() -> None:
        torch.set_num_threads(1)
        made = Sweep(lambda more: load_recipe("cifar_fast_lr_cifar10", [*changes, *more]),
                     [Search.read("optimizer.lr=0.01..0.5:log")], 3, folder)  # fmt: skip
        done = list(run_sweep(made, device="cpu"))
        if len(done) != 3 or len({one.number for one in done}) != 3 or any(one.top1 is None for one in done):
            raise CruciformError(f"trials: {done}")

    hits = 0
    for _ in range(2):
        child = spawn(run, trial.folder / "stderr")
        time.sleep(trial.random.uniform(0.1, 1.2))
        os.kill(child, signal.SIGKILL)
        hits += wait(child) < 0
    if trial.number % 2 and (folder / "study.log").exists():
        (folder / "study.log.lock").touch()  # of a process that is no more
    code = wait(spawn(run, trial.folder / "stderr"), 120)
    if code:
        raise Violation("I4", f"ended with {code}: {(trial.folder / 'stderr').read_text()[-200:]}")
    for directory in folder.glob("trial-*"):
        if Run(directory).status()["state"] != "done":
            raise Violation("I5", f"{directory.name} is not done")
    return hits
