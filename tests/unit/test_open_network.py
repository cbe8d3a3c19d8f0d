"""One function opens whatever a user can name, in Python as on the command line."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file, save_model
from torch import nn

import cruciform
from cruciform.conversion.convert import convert
from cruciform.errors import OptionError, StoreError, UnknownNameError
from cruciform.models.zoo import create_model
from cruciform.networks.open_network import OpenedNetwork, open_network, resolve_network
from cruciform.store.directory import Base, save

OPTIONS = {"input_size": 16, "num_classes": 3}
CODE = """
import torch
from torch import nn
def small():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 6 * 6, 2))
def nothing():
    return 3
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    import sys

    name = f"own_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return name


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    model, report = convert(create_model("nin", **OPTIONS), "lr", input_size=(3, 16, 16))
    return save(model, tmp_path / "nin-lr", report, base=Base("zoo:nin", OPTIONS), classes=["a", "b", "c"])


def test_it_is_public() -> None:
    assert cruciform.open_network is open_network


def test_a_name_is_built_with_its_usual_size() -> None:
    found = open_network("nin")
    assert (found.origin, found.reference, found.input_size, found.trained) == ("name", "nin", (3, 32, 32), None)
    assert found.base == Base("nin")
    assert open_network("nin", input_size=(3, 48, 48)).input_size == (3, 48, 48)


def test_a_library_says_how_images_are_preprocessed(libraries: None) -> None:
    found = open_network("timm:resnet18", on_meta=True)
    assert found.preprocessing is not None
    assert found.preprocessing["data"]["mean"] == pytest.approx([255 * 0.485, 255 * 0.456, 255 * 0.406])
    assert all(weight.is_meta for weight in found.model.parameters())


def test_a_function_is_called_and_takes_trained_weights(own: str, tmp_path: Path) -> None:
    trained = open_network(f"{own}:small").model
    with torch.no_grad():
        for weight in trained.parameters():
            weight.add_(1)
    save_model(trained, str(tmp_path / "w.safetensors"))
    found = open_network(f"{own}:small", weights=tmp_path / "w.safetensors", input_size=(3, 8, 8))
    assert (found.origin, found.trained, found.base.reference) == ("code", True, None)
    images = torch.randn(2, 3, 8, 8)
    assert torch.equal(found.model.eval()(images), trained.eval()(images))
    assert not torch.equal(open_network(f"{own}:small").model.eval()(images), trained(images))


def test_a_function_whose_input_is_unknown_is_refused_when_it_is_needed(own: str) -> None:
    found = open_network(f"{own}:small")
    assert found.input_size is None
    with pytest.raises(OptionError, match=r"input size of own_\w+:small is unknown; give .* 3x224x224"):
        _ = found.needed_input_size


def test_a_function_that_returns_no_network_is_refused(own: str) -> None:
    with pytest.raises(OptionError, match=r"nothing\(\) returned int, not a torch module"):
        open_network(f"{own}:nothing")


@pytest.mark.parametrize("changed", ["a tensor too few", "a tensor too many", "another shape"])
def test_weights_that_do_not_fit_are_refused_whole(own: str, tmp_path: Path, changed: str) -> None:
    tensors = {name: tensor.clone() for name, tensor in open_network(f"{own}:small").model.state_dict().items()}
    if changed == "a tensor too few":
        del tensors["0.weight"]
    elif changed == "a tensor too many":
        tensors["more"] = torch.zeros(1)
    else:
        tensors["3.weight"] = torch.zeros(2, 3)
    save_file(tensors, tmp_path / "w.safetensors")
    with pytest.raises(StoreError, match=r"the weights in .*w.safetensors do not fit the network"):
        open_network(f"{own}:small", weights=tmp_path / "w.safetensors")


def test_a_pickle_of_weights_is_refused_unread(own: str, tmp_path: Path) -> None:
    (tmp_path / "w.pt").write_bytes(b"\x80\x02.")
    with pytest.raises(OptionError, match="may run any code"):
        open_network(f"{own}:small", weights=tmp_path / "w.pt")


def test_a_model_directory_brings_what_it_knows(directory: Path) -> None:
    found = open_network(directory)
    assert (found.origin, found.input_size, found.classes) == ("directory", (3, 16, 16), ("a", "b", "c"))
    assert found.base == Base("zoo:nin", OPTIONS)
    assert found.trained is False
    with pytest.raises(OptionError, match="has weights of its own"):
        open_network(directory, weights="w.safetensors")


def test_other_initial_weights_are_not_called_trained(directory: Path) -> None:
    before = open_network(directory).model.state_dict()
    found = open_network(directory, init="pytorch")
    assert found.trained is False
    assert any(not torch.equal(tensor, before[name]) for name, tensor in found.model.state_dict().items())


def test_a_name_that_is_nothing_says_what_may_be_named() -> None:
    with pytest.raises(UnknownNameError, match="timm:NAME"):
        open_network("nowhere")


def test_a_module_is_taken_as_it_is() -> None:
    model = nn.Conv2d(3, 4, 3)
    with pytest.raises(OptionError, match="not by a Conv2d; a module that you have needs no opening"):
        open_network(model)  # type: ignore[arg-type]
    found = resolve_network(model, input_size=(3, 8, 8))
    assert found.model is model
    assert (found.origin, found.input_size) == ("module", (3, 8, 8))
    assert isinstance(resolve_network("nin"), OpenedNetwork)
    assert resolve_network(found) is found
    with pytest.raises(OptionError, match="int is not a network"):
        resolve_network(3)  # type: ignore[arg-type]
