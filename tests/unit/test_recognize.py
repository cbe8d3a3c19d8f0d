"""What was given as a network, and what to do: said of everything that may be lying about."""

import os
import pickle
import zipfile
from pathlib import Path

import pytest

from cruciform.errors import OptionError, StoreError, UnknownNameError
from cruciform.store.check_reference import check_reference
from cruciform.store.directory import load
from cruciform.store.recognize import describe_path


def make(folder: Path) -> None:
    for name in ("w.pt", "w.ckpt", "w.safetensors", "w.onnx", "w.toml", "net.py", "README"):
        (folder / name).write_text("x")
    with zipfile.ZipFile(folder / "archive", "w") as archive:
        archive.writestr("archive/data.pkl", b"")
    (folder / "pickled").write_bytes(pickle.dumps([1]))
    os.mkfifo(folder / "pipe")
    (folder / "empty").mkdir()
    for name, file in (("half", "model.safetensors"), ("artifact", "deploy.json"), ("photos", "a.jpg"),
                       ("saved", "model.json"), ("run", "recipe.json")):  # fmt: skip
        (folder / name).mkdir()
        (folder / name / file).write_text("{}")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("w.pt", "is a pickle, .* it is never loaded; .* torch.load\\(..., weights_only=True\\), .* package.module:"),
        ("w.ckpt", "is a pickle"),
        ("archive", "is a pickle"),
        ("pickled", "is a pickle"),
        ("w.safetensors", "has weights but no architecture"),
        ("w.onnx", "is an exported ONNX network already"),
        ("w.toml", "is a recipe; train it with 'cruciform train'"),
        ("net.py", "is Python code"),
        ("README", "is a file, not a network"),
        ("pipe", "is not a regular file"),
        ("empty", "is a directory that is empty"),
        ("photos", "contains neither model.json nor recipe.json"),
        ("half", "but no model.json"),
        ("artifact", "is an artifact of 'cruciform deploy'"),
        ("saved/model.json", "is one file of a directory; give the directory: .*saved"),
        ("missing/network", "there is no such file or directory"),
        ("missing.pt", "there is no such file or directory"),
    ],
)
def test_what_is_no_network_is_told_by_what_it_is(
    name: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path)
    monkeypatch.chdir(tmp_path)
    for given in (name, str(tmp_path / name)):
        with pytest.raises(OptionError, match=f"{said}.* A network is given by a name of 'cruciform models'"):
            check_reference(given)


def test_what_may_be_a_network_is_let_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vgg11").mkdir()  # a name of ours is that network, whatever is lying about
    (tmp_path / "tim.py").write_text("")
    for name in ("vgg11", "zoo:nin", "timm:resnet18", "monai:UNet-3d", "saved", "run", "mine.nets:make", "tim:make"):
        assert check_reference(name) == name


def test_a_source_that_is_mistyped_is_told() -> None:
    with pytest.raises(UnknownNameError, match="neither a library nor a module named 'tim'. Did you mean 'timm'"):
        check_reference("tim:resnet18")


def test_what_is_saved_is_described_by_its_kind(tmp_path: Path) -> None:
    make(tmp_path)
    for name, kind in (("saved", "a model directory"), ("run", "a run of 'cruciform train'")):
        assert kind in describe_path(tmp_path / name)


def test_python_is_told_too(tmp_path: Path) -> None:
    make(tmp_path)
    with pytest.raises(StoreError, match="is not a model directory: .*w.pt is a pickle"):
        load(tmp_path / "w.pt")
