"""The command line, with real data where it is there: what people type, what they see, and what it ends with."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cruciform.training.run.run import Run

Command = Callable[..., "subprocess.CompletedProcess[str]"]
DATA = os.environ.get("CRUCIFORM_DATA")


@pytest.fixture
def command(tmp_path: Path) -> Command:
    def run(*words: object, **options: Any) -> "subprocess.CompletedProcess[str]":
        environment = {"OMP_NUM_THREADS": "1", **os.environ, **options.pop("env", {})}
        return subprocess.run(
            [sys.executable, "-m", "cruciform", *map(str, words)],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=250, check=False, **options,
        )  # fmt: skip

    return run


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    sys.path.insert(0, str(Path(__file__).parent))
    from kill_driver import write_data

    write_data(tmp_path / "data")
    path = tmp_path / "small.toml"
    path.write_text(
        f"""
        epochs = 2
        batch_size = 50
        model = {{name = "nin_c3_lr"}}
        data = {{kind = "cifar10", path = "{tmp_path / "data"}"}}
        optimizer = {{kind = "sgd", lr = 0.005}}
        log = {{steps = 1, tensorboard = false}}
        """.replace("\n        ", "\n")
    )
    return path


@pytest.mark.slow
def test_train_runs_and_evaluate_agree(
    command: Command, cruciform: Command, recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = command("train", recipe, "--json")
    assert trained.returncode == 0, trained.stderr
    status = json.loads(trained.stdout)
    assert status["state"] == "done"
    assert "epoch 2: training loss" in trained.stderr
    monkeypatch.chdir(tmp_path)
    runs = cruciform("runs", "--json")
    assert json.loads(runs.stdout) == [status]
    judged = cruciform("evaluate", "runs/small", "--json", "--plot", "confusion.png")
    assert judged.returncode == 0, judged.stderr
    figures = json.loads(judged.stdout)
    assert figures["top1"] == status["top1"]
    assert figures["samples"] == 20
    assert sum(map(sum, figures["confusion"])) == 20
    assert (tmp_path / "confusion.png").stat().st_size > 5000


@pytest.mark.slow
def test_a_signal_ends_it_with_its_own_code_and_it_goes_on(cruciform: Command, recipe: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "cruciform", "train", str(recipe), "--run", "run", "--set", "epochs=50"],
        cwd=tmp_path, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    log = tmp_path / "run" / "log.jsonl"
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline and (not log.exists() or '"event": "step"' not in log.read_text()):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=100)
    assert process.returncode == 130, message
    assert "its state is saved. Resume with: cruciform train run --resume" in message
    assert json.loads(cruciform("runs", tmp_path, "--json").stdout)[0]["state"] == "interrupted"
    changed = cruciform("train", tmp_path / "run", "--resume", "--set", "epochs=2")
    assert changed.returncode == 7
    assert "epochs was 50, now 2" in changed.stderr


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["nin_c3_lr_cifar1"], 3, "Did you mean 'nin_c3_lr_cifar10'"),
        (["nin_c3_lr_cifar10", "--set", "epoch=2"], 3, "there is no key 'epoch'. Did you mean 'epochs'?"),
        (["nin_c3_lr_cifar10", "--set", "data.path=nowhere"], 4, "does not exist"),
        (["nin_c3_lr_cifar10", "--backend", "slurm"], 2, "unknown backend 'slurm'"),
        (["nin_c3_lr_cifar10", "--workers", "2"], 7, "the backend local has one process, not 2"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_an_exit_code(
    cruciform: Command, words: list[str], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = cruciform("train", *words)
    assert done.returncode == code, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert message in line
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_loss_that_is_no_number_has_its_own_exit_code(
    cruciform: Command, recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = cruciform("train", recipe, "--set", "optimizer.lr=1e30", "--set", "epochs=4")
    assert done.returncode == 6, done.stderr
    assert "is NaN or Inf" in done.stderr
    assert Run(tmp_path / "runs" / "small").status()["state"] == "failed"


@pytest.mark.slow
@pytest.mark.skipif(
    subprocess.run(["unshare", "-Urm", "true"], capture_output=True, check=False).returncode != 0,  # noqa: S607
    reason="no user namespaces here, so no small file system can be mounted",
)
def test_a_full_disk_has_its_own_exit_code_and_the_last_checkpoint_can_be_read(recipe: Path, tmp_path: Path) -> None:
    """A real file system of a few megabytes: the first checkpoints fit, then it is filled up."""
    small = tmp_path / "small"
    small.mkdir()
    script = f"""
        set -e
        mount -t tmpfs -o size=24m tmpfs {small}
        cd {tmp_path}
        {sys.executable} -m cruciform train {recipe} --run {small}/run --set epochs=1
        dd if=/dev/zero of={small}/filler bs=1k count=100000 2>/dev/null || true
        set +e
        {sys.executable} -m cruciform train {recipe} --run {small}/other --set epochs=1
        echo code $?
        {sys.executable} -m cruciform evaluate {small}/run
        echo code $?
        rm {small}/filler
        dd if=/dev/zero of={small}/filler bs=1k count=11500 2>/dev/null
        {sys.executable} -m cruciform train {recipe} --run {small}/third --set 'checkpoint={{steps=1,keep=9}}'
        echo code $?
        rm {small}/filler
        {sys.executable} -m cruciform evaluate {small}/third
        echo code $?
    """
    done = subprocess.run(
        ["unshare", "-Urm", "bash", "-c", script],  # noqa: S607
        capture_output=True, text=True, timeout=250, check=False, env={"OMP_NUM_THREADS": "1", **os.environ},
    )  # fmt: skip
    codes = [line.removeprefix("code ") for line in done.stdout.splitlines() if line.startswith("code ")]
    assert codes == ["5", "0", "5", "0"], done.stderr
    assert "the disk is full" in done.stderr
    assert "the last valid checkpoint is" in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(DATA is None, reason="CRUCIFORM_DATA is not set: real CIFAR-10 is needed")
def test_a_real_epoch_of_cifar10_teaches_something(command: Command, tmp_path: Path) -> None:
    part = tmp_path / "part"
    part.mkdir()
    for path in (Path(str(DATA)) / "cifar-10-batches-bin").glob("*.bin"):
        (part / path.name).write_bytes(path.read_bytes()[: 1000 * 3073])
    # In 32 bits, which every processor computes by itself.
    changes = ("--set", "epochs=1", "--set", f"data.path={part}", "--set", "precision=fp32")
    trained = command("train", "modern_cifar10", *changes, "--json", env={"CRUCIFORM_CACHE": str(tmp_path / "cache")})
    assert trained.returncode == 0, trained.stderr
    assert json.loads(trained.stdout)["top1"] > 0.15
