"""What a file may make a library build: no more than the weights beside it could fill."""

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from cruciform.conversion.convert import convert
from cruciform.errors import OptionError, StoreError
from cruciform.models.zoo import create_model
from cruciform.sources.bounds import Bounds, bounded
from cruciform.sources.network_library import SOURCES, NetworkLibrary
from cruciform.store.directory import Base, load, load_with, save, saved_input_size

BOUNDS = Bounds.of([(4, 3, 3, 3), (4,)])


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    options = {"widths": [4, 4, 4]}
    model, report = convert(create_model("cifar_fast", **options), "lr", input_size=(3, 32, 32))
    return save(model, tmp_path / "model", report, base=Base("cifar_fast", options))


def rewrite(directory: Path, **changes: Any) -> None:
    card = directory / "model.json"
    card.write_text(json.dumps({**json.loads(card.read_text()), **changes}))


@pytest.mark.parametrize(
    ("reference", "options", "message"),
    [
        ("cifar_fast", {"widths": [1_000_000] * 3}, "option 'widths' is 1000000; at most 8,192"),
        ("cifar_fast", {"widths": [8_192] * 3}, "more than .* values in one tensor"),
        ("cifar_fast", {"depth": 10**30}, "option 'depth' is a number of 31 digits"),
        ("cifar_fast", {"scale": float("nan")}, "option 'scale' is nan"),
        ("cifar_fast", {"activation": "r99999999"}, "option 'activation' is 99999999"),
        ("cifar_fast", {"activation": "x" * 2000}, "a text of 2,000 characters"),
        ("cifar_fast", {"num_classes": 10**9}, "option 'num_classes' is 1000000000"),
        ("vgg11", {"widths": [[8] * 20_000]}, "options have more than .* values"),
        ("vgg11", {"widths": [[8] * 1_000]}, "more than 444 parameters"),
        ("vgg11", {}, "more than .* values in one tensor"),
    ],
)
def test_a_card_that_asks_for_more_than_its_weights_is_refused_within_a_second(
    directory: Path, reference: str, options: dict[str, Any], message: str
) -> None:
    rewrite(directory, base={"reference": reference, "options": options}, layers={})
    began = time.process_time()
    with pytest.raises(OptionError, match=message):
        load(directory)
    with pytest.raises(OptionError, match=message):
        load_with(directory, {"num_classes": 3})
    assert time.process_time() - began < 2


@pytest.mark.parametrize("init", ["identity", "paper-completed", "pytorch"])
def test_every_rule_of_initialization_stays_within_the_bounds(tmp_path: Path, init: str) -> None:
    options = {"widths": [32, 256, 256], "init": init}
    model, report = convert(create_model("cifar_fast", **options), "lr", input_size=(3, 32, 32))
    load(save(model, tmp_path / "model", report, base=Base("cifar_fast", options)))


@pytest.mark.parametrize("size", [[3, 10**6, 10**6], [3, -1, 32], [3, 0, 32], "3x32x32", {"a": 1}])
def test_the_size_of_an_input_is_bounded_too(directory: Path, size: object) -> None:
    rewrite(directory, input_size=size)
    with pytest.raises(StoreError, match="has input_size"):
        saved_input_size(directory)


def test_what_could_not_be_read_again_is_not_saved(tmp_path: Path) -> None:
    model, report = convert(nn.Sequential(nn.Conv2d(3, 4, 3)), "lr")
    with pytest.raises(OptionError, match="option 'depth' is 100000"):
        save(model, tmp_path / "x", report, base=Base("mine:net", {"depth": 100_000}))
    assert not (tmp_path / "x").exists()


def test_many_classes_are_allowed_where_the_weights_have_them() -> None:
    many = Bounds.of([(100_000, 8)])
    many.check_options({"num_classes": 100_000}, "x")
    with pytest.raises(OptionError, match="option 'depth'"):
        many.check_options({"depth": 100_000}, "x")
    with pytest.raises(OptionError, match="option 'num_classes'"):
        Bounds.of([(100_000, 0)]).check_options({"num_classes": 100_000}, "x")  # an extent of nothing


def many_modules() -> None:
    nn.Sequential(*[nn.Sequential(nn.ReLU()) for _ in range(100_000)])


def many_parameters() -> None:
    nn.ModuleList(nn.Conv2d(1, 1, 1) for _ in range(100_000))


def large_parameters() -> None:
    for _ in range(100_000):
        nn.Linear(1_000, 1_000)


def many_operations() -> None:
    for number in torch.linspace(0, 1, 100_000):
        number.item()


def a_large_tensor_by_its_size() -> None:
    torch.zeros(10**9, 10**3)


def a_large_tensor_out_of_small_ones() -> None:
    torch.ones(10**6)[:, None] * torch.ones(10**6)


BOMBS = (many_modules, many_parameters, large_parameters, many_operations, a_large_tensor_by_its_size,
         a_large_tensor_out_of_small_ones)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("build", BOMBS, ids=lambda build: build.__name__)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_every_way_to_ask_for_too_much_is_stopped_while_it_is_built(build: Any, device: str) -> None:
    if device == "meta" and build is many_operations:
        pytest.skip("numbers on the meta device can't be looked at")
    began = time.process_time()
    refused = pytest.raises(OptionError, match="somebody's file asks for a network of more than")
    with refused, torch.device(device), bounded(BOUNDS, "somebody's file"):
        build()
    assert time.process_time() - began < 3
    nn.Sequential(*[nn.ReLU() for _ in range(2_000)])  # no hook is left behind


def test_other_threads_build_what_they_like() -> None:
    thread = threading.Thread(target=lambda: nn.Sequential(*[nn.ReLU() for _ in range(5_000)]))
    failed: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading, "excepthook", failed.append)
        with bounded(BOUNDS, "x"):
            thread.start()
            thread.join()
    assert not failed


@pytest.fixture
def computes_while_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library whose network looks at numbers while it is built, so it can't be built on the meta device."""

    def build(name: str, options: Any) -> nn.Module:
        rates = [rate.item() for rate in torch.linspace(0, 0.5, options.get("depth", 2))]
        width = options.get("width", 4)
        return nn.Sequential(nn.Conv2d(3, width, 3), *[nn.Sequential(nn.Conv2d(width, width, 3)) for _ in rates])

    library = NetworkLibrary(lambda: ["net"], build, lambda name, model: (3, 16, 16))
    monkeypatch.setattr(SOURCES, "_items", {**SOURCES._items, "looking": library})


@pytest.mark.usefixtures("computes_while_built")
@pytest.mark.parametrize("options", [{}, {"depth": 3}])
def test_a_network_that_computes_while_it_is_built_comes_back(tmp_path: Path, options: dict[str, int]) -> None:
    model, report = convert(SOURCES.get("looking").build("net", options), "lr", input_size=(3, 16, 16))
    saved = save(model, tmp_path / "m", report, base=Base("looking:net", options))
    again = load(saved)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), again.parameters(), strict=True))


@pytest.mark.usefixtures("computes_while_built")
@pytest.mark.parametrize("options", [{"depth": 8_000}, {"width": 8_192, "depth": 100}])
def test_a_network_that_computes_while_it_is_built_is_bounded_too(tmp_path: Path, options: dict[str, int]) -> None:
    model, report = convert(SOURCES.get("looking").build("net", {}), "lr", input_size=(3, 16, 16))
    saved = save(model, tmp_path / "m", report, base=Base("looking:net"))
    rewrite(saved, base={"reference": "looking:net", "options": options})
    with pytest.raises(OptionError, match="asks for a network of more than"):
        load(saved)
