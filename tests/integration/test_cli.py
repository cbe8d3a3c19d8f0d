"""The commands as people type them, with their exit codes: some in a process of their own, most in this one."""

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

Answer = subprocess.CompletedProcess[str]
Program = Callable[..., Answer]


def in_a_process(*words: str) -> Answer:
    command = [sys.executable, "-m", "cruciform", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.slow
def test_models_lists_at_least_eighteen() -> None:
    done = in_a_process("models", "--json")
    assert done.returncode == 0
    assert len(json.loads(done.stdout)) >= 18


def test_profile_prints_the_papers_counts(cruciform: Program) -> None:
    done = cruciform("profile", "vgg11_gmp_lr")
    assert done.returncode == 0
    assert "2,518,134,440 MACs (paper" in done.stdout
    assert "26,054,888 parameters" in done.stdout


def test_the_zoo_is_a_source_like_any_other(cruciform: Program) -> None:
    assert cruciform("profile", "zoo:nin", "--json").stdout == cruciform("profile", "nin", "--json").stdout


def test_profile_as_csv(cruciform: Program) -> None:
    rows = list(csv.reader(cruciform("profile", "nin_c3_lr", "--csv").stdout.splitlines()))
    assert rows[-1] == ["total", "", "", "", "438410", "119857152", "119858762"]


def test_paper_tables_are_checked(cruciform: Program) -> None:
    done = cruciform("paper", "tables", "--check")
    assert done.returncode == 0
    assert "18 of 18 rows equal" in done.stdout


def test_a_failed_check_exits_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from typer.testing import CliRunner

    from cruciform.cli.main import app
    from cruciform.paper import tables

    rows = [replace(row, params=row.params + 1) for row in list(tables.check_tables())[:1]]
    monkeypatch.setattr(tables, "check_tables", lambda: iter(rows))
    result = CliRunner().invoke(app, ["paper", "tables", "--check"])
    assert result.exit_code == 1
    assert "0 of 1 rows equal" in result.output


@pytest.mark.slow
def test_doctor_ends_with_its_verdict(cruciform: Program) -> None:
    done = cruciform("doctor", "vgg11_gmp_lr_join", "--init", "paper-completed")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "trainable")


@pytest.mark.slow
@pytest.mark.parametrize("init", ["pytorch", "per-group"])
def test_doctor_exits_with_one_when_the_network_is_untrainable(init: str) -> None:
    done = in_a_process("doctor", "vgg11_gmp_lr_join", "--init", init)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].startswith("untrainable: the gradient")


@pytest.mark.slow
def test_doctor_draws_and_reads_images(cruciform: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save(tmp_path / "images.npy", np.random.default_rng(0).normal(size=(2, 3, 32, 32)))
    done = cruciform("doctor", "nin_c3_lr", "--images", "images.npy", "--plot", "d.png", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["verdict"] == "trainable"
    assert (tmp_path / "d.png").read_bytes().startswith(b"\x89PNG")


def test_doctor_refuses_images_that_are_not_finite(cruciform: Program, tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", np.full((2, 3, 32, 32), np.nan))
    done = cruciform("doctor", "nin", "--images", str(tmp_path / "images.npy"))
    assert (done.returncode, "has NaN or Inf" in done.stderr) == (2, True)


def test_json_stays_json_where_gradients_are_no_numbers(
    cruciform: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "dead.py").write_text(
        "from torch import nn\n"
        "def net():\n"
        "    layers = [nn.Conv2d(3, 3, 3, bias=False) for _ in range(3)]\n"
        "    nn.init.zeros_(layers[1].weight)\n"
        "    return nn.Sequential(*layers)\n"
    )
    done = cruciform("doctor", "dead:net", "--input", "3x16x16", "--json")
    assert done.returncode == 1

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    blocks = json.loads(done.stdout, parse_constant=refuse)["blocks"]
    assert blocks[2]["activation_ratio"] is None, "nothing came in and nothing went out"


def test_a_network_of_the_users_own(cruciform: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "mine.py").write_text("from torch import nn\ndef net():\n    return nn.Conv2d(1, 2, 3)\n")
    done = cruciform("profile", "mine:net", "--input", "1x5x5")
    assert done.returncode == 0
    assert "162 MACs" in done.stdout
    done = cruciform("convert", "mine:net", "--input", "1x5x5", "-o", "converted")
    assert "load it with cruciform.load('converted', net())" in done.stdout
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("profile", "vgg12"), "error: unknown network 'vgg12'. Did you mean"),
        (("convert", "resnet18"), "or name one as timm:NAME, torchvision:NAME, monai:NAME, or package.module:function"),
        (("models", "resnet"), "no network of the zoo has 'resnet' in its name"),
        (("profile", "nin", "--input", "3x"), "is not an input size; write channels and spatial size, as 3x224x224"),
        (("profile", "nothing.there:f", "--input", "3x8x8"), "error: nothing.there:f can't be imported"),
        (("profile", "torch.nn:Identity"), "add --input, for instance --input 3x224x224"),
        (("profile", "builtins:dict", "--input", "3x8x8"), "returned dict, not a torch module"),
        (("doctor", "nin", "--init", "papr"), "error: unknown initialization 'papr'."),
        (("doctor", "nin", "--images", "none.npy"), "is not a .npy file of (N, C, H, W) floats"),
        (("profile", "nin", "--input", "3x2x2"), "does not run on an input of (3, 2, 2)"),
    ],
)
def test_what_can_not_be_done_is_one_sentence_and_exit_code_two(
    cruciform: Program, words: tuple[str, ...], sentence: str
) -> None:
    done = cruciform(*words)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_where_a_folder_is_to_be_is_one_sentence_too(cruciform: Program, tmp_path: Path) -> None:
    (tmp_path / "in" / "cat").mkdir(parents=True)
    (tmp_path / "in" / "cat" / "a.png").write_text("")
    (tmp_path / "out").write_text("")
    done = cruciform("shard", "write", str(tmp_path / "in"), str(tmp_path / "out"))
    assert done.returncode == 2
    assert f"error: {tmp_path / 'out'}" in done.stderr
    assert "Not a directory" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from cruciform.errors import MissingExtraError
    from cruciform.plot.style import new_figure

    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'cruciform\[plot\]'"):
        new_figure(1, 1)
