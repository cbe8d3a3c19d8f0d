"""Choosing by measuring, with engines whose speed we set: the fastest wins, and dense where nothing beats it."""

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from cruciform import convert
from cruciform.deployment.artifact import open_artifact, verdict, write_artifact
from cruciform.deployment.parity.compare import pytorch
from cruciform.deployment.parity.verify import verify
from cruciform.deployment.rewrites.graph import CAT
from cruciform.deployment.search.build import Build, EngineSettings
from cruciform.deployment.search.choose import Choice, choose_build
from cruciform.deployment.search.clock import Timing, time_engines
from cruciform.deployment.search.layer_forms import build_form, composite_layers
from cruciform.deployment.targets.target import TARGETS, Engine, Target
from cruciform.errors import DeployError, ShapeError

SIZE = (3, 16, 16)


class Paced(Target):
    """Runs the graph itself, and then works for as long as a price list says."""

    name = "paced"
    packages = ()
    extra = ""

    def __init__(self, price: Callable[[GraphModule], float]) -> None:
        self._price = price
        self._graphs: dict[Path, GraphModule] = {}

    def write(self, graph: GraphModule, input_size: tuple[int, ...], folder: Path, *, batch: int) -> None:
        self._graphs[folder] = graph
        (folder / "graph.txt").write_text(str(graph.graph))

    def load(self, folder: Path, *, threads: int) -> Engine:
        graph = self._graphs[folder]
        price = self._price(graph)

        def run(images: Any) -> Any:
            end = time.process_time() + price
            with torch.no_grad():
                output = graph(torch.from_numpy(images)).numpy()
            while time.process_time() < end:
                pass
            return output

        return run


def count(graph: GraphModule, *targets: object) -> int:
    return sum(node.target in targets for node in graph.graph.nodes)


def network() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(2048, 4),
    )
    return convert(model, "lr").model.eval()


def choose(price: Callable[[GraphModule], float]) -> tuple[Choice, EngineSettings]:
    setting = EngineSettings(Paced(price), SIZE, rounds=3)
    return choose_build(network(), setting), setting


def some_choice(model: nn.Module) -> Choice:
    """What a search might have chosen, without the search."""
    return Choice(Build(dict.fromkeys(composite_layers(model), "tail")), Timing((1.0,)), None, {}, (), ())


@pytest.mark.slow
def test_a_network_in_training_stays_in_training() -> None:
    model = network().train()
    setting = EngineSettings(TARGETS.get("torch"), SIZE, rounds=1, search_seconds=0)
    choose_build(model, setting)
    assert all(module.training for module in model.modules())
    graph = build_form(model, {}, SIZE)
    verify(model, graph, pytorch(graph), Build({}), setting)
    assert all(module.training for module in model.modules())


def test_what_is_not_of_32_bits_is_refused_before_it_is_timed() -> None:
    model = nn.Sequential(network(), Halved())
    with pytest.raises(DeployError, match=r"returns torch.bfloat16; a deployed network returns torch.float32"):
        choose_build(model, EngineSettings(TARGETS.get("torch"), SIZE, rounds=1))


def test_weights_of_both_ranks_in_one_network_run_in_pytorch() -> None:
    model = nn.Sequential(nn.Conv3d(3, 4, 3), nn.Flatten(1, 2), nn.Conv2d(8, 4, 3), nn.Flatten(), nn.Linear(64, 2))
    setting = EngineSettings(TARGETS.get("torch"), (3, 4, 8, 8), rounds=1)
    choice = choose_build(model, setting)
    assert choice.timing.best > 0


class Halved(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.bfloat16()


@pytest.mark.slow
def test_dense_is_shipped_where_nothing_beats_it() -> None:
    aten = torch.ops.aten
    choice, _ = choose(lambda graph: 0.002 * count(graph, aten.conv2d.default) + 0.002 * count(graph, CAT))
    assert choice.build.is_dense
    assert choice.dense is not None
    assert choice.timing.best == choice.dense.best
    assert verdict(choice) == "the low-rank form is not faster here; falls back to the equal dense network"


@pytest.mark.slow
def test_the_fastest_form_of_basis_filters_is_found() -> None:
    def price(graph: GraphModule) -> float:
        # Dense kernels are dear, and so is an activation that reads a concatenation.
        convolutions = [node for node in graph.graph.nodes if node.target is torch.ops.aten.conv2d.default]
        square = sum(node.meta["val"].shape[1] == 8 for node in convolutions if "val" in node.meta)
        behind = sum(
            node.args[0].target is CAT for node in graph.graph.nodes if node.target is torch.ops.aten.relu.default
        )
        return 0.004 + 0.006 * square + 0.003 * behind + 0.004 * (len(convolutions) > 4)

    choice, _ = choose(price)
    assert set(choice.build.forms.values()) == {"tail"}
    assert choice.dense is not None
    assert choice.timing.best < choice.dense.best


def test_an_artifact_computes_the_same_and_notices_damage(tmp_path: Path) -> None:
    model = network()
    setting = EngineSettings(TARGETS.get("torch"), SIZE, rounds=2)
    choice = some_choice(model)
    report = write_artifact(model, choice, setting, tmp_path / "out", about={"network": "test"})
    assert report["largest_error"] < 1e-5
    assert report["verified"] == "on its own weights"
    assert report["verified_batches"] == [1, 2, 3]
    assert report["control_error"] > 1e-2
    assert report["control_weights"] in dict(model.named_parameters())
    images = np.random.default_rng(0).normal(size=(2, *SIZE)).astype(np.float32)
    with torch.no_grad():
        expected = model(torch.from_numpy(images)).numpy()
    with pytest.raises(DeployError, match="is made for torch, and such an artifact contains code"):
        open_artifact(tmp_path / "out")
    engine = open_artifact(str(tmp_path / "out"), trust=True)
    assert np.allclose(engine(images), expected, atol=1e-5)
    with pytest.raises(DeployError, match=r"does not run on a ndarray of \(2, 1, 8, 8\), float32: it takes"):
        engine(images[:, :1, :8, :8])
    with pytest.raises(DeployError, match=r"float64: it takes float32 images of size \[3, 16, 16\]"):
        engine(images.astype(np.float64))  # some engines would read its bits
    (tmp_path / "out" / "deploy.json").write_text("{}")
    with pytest.raises(DeployError, match="is not an artifact of 'cruciform deploy', or is damaged"):
        open_artifact(tmp_path / "out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("precious")
    with pytest.raises(DeployError, match="choose another name"):
        write_artifact(model, choice, setting, tmp_path / "mine", about={"network": "test"})
    (tmp_path / "mine" / "deploy.json").write_text("{}")  # others have files of this name
    with pytest.raises(DeployError, match="choose another name"):
        write_artifact(model, choice, setting, tmp_path / "mine", about={"network": "test"})
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "precious"


@pytest.mark.parametrize("wrong", [1.0, float("nan")])
def test_an_engine_that_differs_is_not_shipped(tmp_path: Path, wrong: float) -> None:
    class Wrong(Paced):
        def load(self, folder: Path, *, threads: int) -> Engine:
            right = super().load(folder, threads=threads)
            return lambda images: right(images) + wrong

    model = network()
    setting = EngineSettings(Wrong(lambda graph: 0.0), SIZE, rounds=1)
    choice = some_choice(model)
    with pytest.raises(DeployError, match="paced differs from PyTorch by"):
        write_artifact(model, choice, setting, tmp_path / "out", about={"network": "test"})
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_layers_are_of_one_kind_only_where_all_that_decides_is_alike() -> None:
    torch.manual_seed(0)
    layers = [nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=6, dilation=6)]
    model = convert(nn.Sequential(*layers), "sf").model.eval()
    for layer in model:
        nn.init.zeros_(layer.stage_parameters()[0][0][1])
    nn.init.ones_(model[1].stage_parameters()[0][0][1])  # a bias inside: no equal dense kernel
    # Dense is the fastest alone, so that it is asked for wherever it is thought to be possible.
    price = lambda graph: 0.002 * count(graph, torch.ops.aten.conv2d.default)  # noqa: E731
    choice = choose_build(model, EngineSettings(Paced(price), (8, 16, 16), rounds=2))
    assert [times.kind for times in choice.layers] == [0, 1, 2]
    assert [choice.build.forms[str(index)] == "dense" for index in range(3)] == [True, False, True]


class Slow(Paced):
    """Takes ten seconds to build, by a clock of its own."""

    def __init__(self, price: Callable[[GraphModule], float], monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(price)
        self.now = 0.0
        clock = SimpleNamespace(
            monotonic=lambda: self.now, perf_counter=time.perf_counter, process_time=time.process_time
        )
        for module in ("clock", "choose"):
            monkeypatch.setattr(f"cruciform.deployment.search.{module}.time", clock)

    def write(self, graph: GraphModule, input_size: tuple[int, ...], folder: Path, *, batch: int) -> None:
        self.now += 10
        super().write(graph, input_size, folder, batch=batch)


def deep(layers: int) -> nn.Module:
    """Layers of as many kinds."""
    torch.manual_seed(0)
    widths = range(4, 4 + 2 * layers + 1, 2)
    made = [nn.Conv2d(before, after, 3, padding=1) for before, after in itertools.pairwise(widths)]
    return convert(nn.Sequential(*made), "lr").model.eval()


@pytest.mark.slow
def test_one_time_limit_holds_for_the_whole_search(monkeypatch: pytest.MonkeyPatch) -> None:
    target = Slow(lambda graph: 0.0, monkeypatch)
    told: dict[str, float] = {}
    setting = EngineSettings(target, (4, 8, 8), rounds=1, search_seconds=80)
    choice = choose_build(deep(5), setting, on_progress=lambda what: told.setdefault(what, target.now))
    assert told["whole networks"] == 60, "layers alone get half of it, and what was begun ends; all five would take 150"
    assert told["the chosen network beside the dense one"] == 70, "one network; the next would take too long"
    assert target.now == 80, "after the search: the dense network"
    assert choice.dense is not None
    assert [bool(layer.seconds) for layer in choice.layers] == [True, True, False, False, False]
    assert "layer 2 alone: skipped, because the time limit of 80 s was reached" in choice.untried
    assert "all split, plain: skipped, because the time limit of 80 s was reached" in choice.untried


@pytest.mark.slow
def test_without_any_time_dense_still_wins_where_it_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ways(Slow):
        def ways(self, batch: int, input_size: tuple[int, ...]) -> dict[str, Target]:
            return {"quick": self}

    target = Ways(lambda graph: 0.003 * count(graph, torch.ops.aten.conv2d.default), monkeypatch)
    choice = choose_build(deep(3), EngineSettings(target, (4, 8, 8), rounds=2, search_seconds=0))
    assert choice.build.is_dense
    assert not any(layer.seconds for layer in choice.layers)
    assert {name for name in choice.tried if name.startswith("dense")} == {"dense, plain", "dense, quick"}
    assert verdict(choice) == "the low-rank form is not faster here; falls back to the equal dense network"


@pytest.mark.slow
def test_without_any_time_basis_filters_are_shipped_where_they_win(monkeypatch: pytest.MonkeyPatch) -> None:
    target = Slow(lambda graph: 0.02 / count(graph, torch.ops.aten.conv2d.default), monkeypatch)
    choice = choose_build(deep(3), EngineSettings(target, (4, 8, 8), rounds=2, search_seconds=0))
    assert choice.dense is not None
    assert choice.timing.best < choice.dense.best
    assert set(choice.build.forms.values()) == {"tail"}


class Two(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x, x


def test_what_can_not_be_deployed_is_said_before_anything_is_measured() -> None:
    setting = EngineSettings(Paced(lambda graph: 0.0), SIZE, rounds=2)
    with pytest.raises(DeployError, match="Two returns a tuple; a deployed network returns one tensor"):
        choose_build(Two(), setting)
    with pytest.raises(ShapeError, match=r"does not run on an input of \(3, 16, 16\)"):
        choose_build(nn.Conv2d(4, 4, 3), setting)


def test_an_error_of_an_engine_is_told_as_one_of_deploying() -> None:
    class Broken(Paced):
        def write(self, graph: GraphModule, input_size: tuple[int, ...], folder: Path, *, batch: int) -> None:
            raise LookupError("no such operation")

    with pytest.raises(DeployError, match="can't be converted for this engine: LookupError: no such operation"):
        choose_build(nn.Conv2d(3, 4, 1), EngineSettings(Broken(lambda graph: 0.0), SIZE, rounds=2))


def test_engines_are_timed_in_turns() -> None:
    order: list[str] = []

    def engine(name: str, seconds: float) -> Engine:
        def run(images: Any) -> Any:
            order.append(name)
            end = time.process_time() + seconds
            while time.process_time() < end:
                pass
            return images

        return run

    times = time_engines({"a": engine("a", 0.03), "b": engine("b", 0.06)}, np.zeros(1), rounds=3)
    assert order[4:] == ["a", "b"] * 3
    assert 1.5 < times["b"].best / times["a"].best < 2.5


def test_a_drift_is_seen_between_the_halves_of_the_rounds() -> None:
    assert Timing((1.0, 1.05, 1.02, 1.04)).drift == pytest.approx(0.02)
    assert Timing((1.0, 1.0, 1.2, 1.3)).drift == pytest.approx(0.2)
    assert Timing((1.0,)).drift == 0
