import json
import os
import pickletools
from pathlib import Path

import pytest
import torch
from torch import nn

from cruciform.conversion.convert import convert, plan_conversion
from cruciform.errors import StoreError, UnknownNameError
from cruciform.models.zoo import create_model
from cruciform.store.directory import Base, load, load_with, save

SIZE = (3, 16, 16)


class Tied(nn.Module):
    """A convolution in two places: safetensors wants to be told of shared memory."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.twice = nn.Conv2d(width, width, 3, padding=1)
        self.again = self.twice
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.again(self.twice(self.first(x))))


@pytest.fixture
def saved(tmp_path: Path) -> tuple[nn.Module, Path]:
    model, report = convert(create_model("nin", input_size=16, num_classes=3), "lr-join", input_size=SIZE)
    base = Base("zoo:nin", {"input_size": 16, "num_classes": 3})
    return model, save(model, tmp_path / "nin-lr", report, base=base)


def outputs(model: nn.Module) -> torch.Tensor:
    return model.eval()(torch.randn(2, *SIZE, generator=torch.Generator().manual_seed(0)))


def test_a_network_comes_back_equal(saved: tuple[nn.Module, Path]) -> None:
    model, directory = saved
    assert torch.equal(outputs(load(directory)), outputs(model))


def test_a_network_comes_back_in_its_own_precision(tmp_path: Path) -> None:
    model, report = convert(create_model("nin", input_size=16, num_classes=3).bfloat16(), "lr", input_size=SIZE)
    directory = save(model, tmp_path / "half", report, base=Base("zoo:nin", {"input_size": 16, "num_classes": 3}))
    again = load(directory)
    assert {p.dtype for p in again.parameters()} == {torch.bfloat16}
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), again.parameters(), strict=True))


def test_a_network_of_the_users_own_comes_back_on_a_network_of_theirs(tmp_path: Path) -> None:
    model, report = convert(Tied(), "lr")
    save(model, tmp_path / "tied", report)
    again = load(tmp_path / "tied", Tied())
    assert again.twice is again.again
    assert torch.equal(outputs(again), outputs(model))
    with pytest.raises(StoreError, match=r"does not name its dense network; build it and give it: load\("):
        load(tmp_path / "tied")
    with pytest.raises(StoreError, match="the plan for 'first' is for .* but the network has"):
        load(tmp_path / "tied", Tied(8))
    with pytest.raises(StoreError, match="the plan for 'first' needs a convolution there, but the network has nothing"):
        load(tmp_path / "tied", nn.Sequential())
    with pytest.raises(StoreError, match="has cruciform.nn.composite.CompositeConv"):
        load(tmp_path / "tied", convert(Tied(), "lr").model)


def test_pickle_as_format(saved: tuple[nn.Module, Path]) -> None:
    """Peers pickle whole models. Here there are JSON and safetensors, and none of them is a pickle."""
    _, directory = saved
    assert sorted(path.name for path in directory.iterdir()) == ["model.json", "model.safetensors", "report.json"]
    for path in directory.iterdir():
        with pytest.raises(ValueError, match="opcode|pickle|not enough|expected|exhausted"):
            list(pickletools.genops(path.read_bytes()))


def test_a_damaged_directory_is_refused(saved: tuple[nn.Module, Path]) -> None:
    _, directory = saved
    weights = directory / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(bytes(data))
    with pytest.raises(StoreError, match="its checksum differs"):
        load(directory)
    os.truncate(weights, 2**36)  # which no checksum would be through in a minute
    with pytest.raises(StoreError, match="can't be read: .*not fully covered"):
        load(directory)
    weights.unlink()
    with pytest.raises(StoreError, match="model.safetensors is missing"):
        load(directory)
    with pytest.raises(StoreError, match="is not a model directory"):
        load(directory / "nothing")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "has format 2; this version reads 1"),
        ({"extra": 1}, "unknown: \\['extra'\\]"),
        ({"base": {"reference": 3, "options": {}}}, "is damaged"),
        ({"layers": []}, "is damaged"),
        ({"layers": {"features.conv1": {}}}, "a plan needs exactly the keys"),
    ],
)
def test_a_card_that_is_not_one_is_refused(
    saved: tuple[nn.Module, Path], change: dict[str, object], message: str
) -> None:
    _, directory = saved
    card = directory / "model.json"
    card.write_text(json.dumps({**json.loads(card.read_text()), **change}))
    with pytest.raises(ValueError, match=message):
        load(directory)


@pytest.mark.parametrize("reference", ["os:system", "builtins:eval", "zoo:../../etc", "timm:hf-hub:someone/something"])
def test_a_card_can_not_name_code_or_a_download(saved: tuple[nn.Module, Path], reference: str) -> None:
    _, directory = saved
    card = directory / "model.json"
    card.write_text(json.dumps({**json.loads(card.read_text()), "base": {"reference": reference, "options": {}}}))
    with pytest.raises((UnknownNameError, ImportError)):
        load(directory)


def test_nothing_but_a_model_directory_is_overwritten(saved: tuple[nn.Module, Path], tmp_path: Path) -> None:
    model, directory = saved
    report = convert(model, "lr").report
    save(model, directory, report)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("precious")
    with pytest.raises(StoreError, match="exists and is not a model directory; choose another name"):
        save(model, tmp_path / "mine", report)
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "precious"


@pytest.mark.parametrize("name", ["onnx", "thesis.txt"])
def test_what_lies_in_a_model_directory_besides_is_not_deleted(saved: tuple[nn.Module, Path], name: str) -> None:
    model, directory = saved
    (directory / "README.md").write_text("our own card")
    report = plan_conversion(create_model("nin"), "lr")
    save(model, directory, report)
    (directory / name).mkdir() if name == "onnx" else (directory / name).write_text("")
    with pytest.raises(StoreError, match=f"also contains {name}, which would be deleted"):
        save(model, directory, report)


def test_a_card_of_somebody_else_does_not_make_a_model_directory(saved: tuple[nn.Module, Path], tmp_path: Path) -> None:
    (tmp_path / "booster").mkdir()
    (tmp_path / "booster" / "model.json").write_text('{"learner": {}, "version": [2, 0, 0]}')
    with pytest.raises(StoreError, match="exists and is not a model directory"):
        save(saved[0], tmp_path / "booster", plan_conversion(create_model("nin"), "lr"))


def test_a_failed_save_leaves_the_old_one_and_no_rubbish(
    saved: tuple[nn.Module, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, directory = saved
    before = {path.name: path.read_bytes() for path in directory.iterdir()}

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("cruciform.files.sync", full)
    with pytest.raises(OSError, match="No space left"):
        save(model, directory, convert(model, "lr").report)
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before
    assert [path.name for path in directory.parent.iterdir()] == [directory.name]


def test_a_network_for_other_classes_begins_its_last_layer_anew_and_says_so(tmp_path: Path) -> None:
    model, report = convert(create_model("nin"), "lr", input_size=(3, 32, 32))
    save(model, tmp_path / "nin-lr", report, base=Base("nin"))
    same = load_with(tmp_path / "nin-lr", {"dropout": 0.1})
    assert not same.reinitialized
    assert all(torch.equal(tensor, same.model.state_dict()[name]) for name, tensor in model.state_dict().items())
    other = load_with(tmp_path / "nin-lr", {"num_classes": 3})
    assert other.reinitialized == ("features.cccp3_2.bias", "features.cccp3_2.weight")
    assert other.model(torch.zeros(1, 3, 32, 32)).shape == (1, 3)
    kept = {name: tensor for name, tensor in other.model.state_dict().items() if name not in other.reinitialized}
    assert all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in kept.items())
