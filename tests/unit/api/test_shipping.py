"""deploy, open_artifact, budget, predict, bench and report as functions: on modules, references and directories."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_model
from torch import nn
from typer.testing import CliRunner

import cruciform
from cruciform.budgets import survey
from cruciform.budgets.costs import CostTable, Kind, LayerCost
from cruciform.cli.main import app
from cruciform.deployment.bench import bench as benches
from cruciform.deployment.bench.bench import Suite
from cruciform.deployment.search.clock import Timing
from cruciform.errors import ConversionError, DataError, DeployError, OptionError
from cruciform.schemes import make_plan

SIZE = (3, 16, 16)
QUICK = cruciform.DeployOptions(rounds=1, search_seconds=0)
CODE = """
import torch
from torch import nn
def dense():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
"""
PREPROCESSING = {"prepare": [], "data": {"mean": [127.0, 127.0, 127.0], "deviation": [60.0, 60.0, 60.0]}}


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    import sys

    name = f"own_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return f"{name}:dense"


@pytest.fixture
def images() -> Any:
    return np.random.default_rng(0).normal(size=(2, *SIZE)).astype(np.float32)


def make(own: str) -> nn.Module:
    return cruciform.open_network(own).model.eval()


def output(model: nn.Module, images: Any) -> Any:
    with torch.no_grad():
        return model.eval()(torch.from_numpy(images)).numpy()


def test_a_module_is_deployed_and_run(own: str, images: Any, tmp_path: Path) -> None:
    model = cruciform.convert(make(own), "lr", input_size=SIZE).model
    artifact = cruciform.deploy(model, tmp_path / "out", target="torch", input_size=SIZE, options=QUICK)
    assert np.allclose(artifact(images), output(model, images), atol=1e-5)
    assert (artifact.path, artifact.target, artifact.input_size, artifact.batch) == (tmp_path / "out", "torch", SIZE, 1)
    assert artifact.milliseconds <= (artifact.dense_milliseconds or 0)
    assert artifact.error < 1e-4
    assert "differs from PyTorch by at most" in str(artifact)
    assert "the equal dense network" in str(artifact)
    assert "<table>" in artifact._repr_html_()
    with pytest.raises(DeployError, match="trust=True"):
        cruciform.open_artifact(tmp_path / "out")
    assert np.allclose(cruciform.open_artifact(tmp_path / "out", trust=True)(images), artifact(images))


@pytest.mark.slow
def test_without_an_output_the_artifact_is_temporary(own: str, images: Any) -> None:
    artifact = cruciform.deploy(make(own), target="torch", input_size=SIZE, options=QUICK)
    path = artifact.path
    assert path.is_dir()
    assert artifact(images).shape == (2, 4)
    del artifact
    assert not path.exists()


@pytest.mark.slow
def test_a_function_is_deployed_with_its_trained_weights(own: str, images: Any, tmp_path: Path) -> None:
    trained = make(own)
    with torch.no_grad():
        for weight in trained.parameters():
            weight.mul_(1.5)
    save_model(trained, str(tmp_path / "w.safetensors"))
    words = [own, "--weights", "w.safetensors", "--input", "3x16x16", "--target", "torch", "--rounds", "1"]
    ended = CliRunner().invoke(app, ["deploy", *words, "--search-seconds", "0", "-o", "typed"], catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    assert "written to typed" in ended.output
    called = cruciform.deploy(own, weights="w.safetensors", input_size=SIZE, target="torch", options=QUICK)
    for artifact in (called, cruciform.open_artifact("typed", trust=True)):
        assert np.allclose(artifact(images), output(trained, images), atol=1e-5)


def test_an_int8_target_asks_for_images(own: str) -> None:
    with pytest.raises(OptionError, match=r"torch-int8 is calibrated on images.* DeployOptions\(images="):
        cruciform.deploy(own, target="torch-int8", input_size=SIZE)


def test_a_wrong_setting_is_refused(own: str) -> None:
    for wrong in ({"batch": 0}, {"options": cruciform.DeployOptions(threads=0)}):
        with pytest.raises(OptionError, match="must be 1 or more, not 0"):
            cruciform.deploy(own, target="torch", input_size=SIZE, **wrong)  # type: ignore[arg-type]


@pytest.fixture
def known_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times that need no engine: as many nanoseconds as MACs."""

    def measure(kind: Kind, schemes: list[str], *words: object, on_progress: object) -> CostTable:
        macs = {scheme: make_plan(kind.spec, scheme).macs_from_input(kind.input_size[1:]) for scheme in ("full", "lr")}
        return CostTable({scheme: LayerCost(1e-9 * n, "tail" * (scheme != "full")) for scheme, n in macs.items()}, {})

    def times(networks: object, setting: object) -> dict[str, Timing]:
        return {"dense": Timing((8e-4,)), "chosen": Timing((4e-4,))}

    monkeypatch.setattr(survey, "measure_kind", measure)
    monkeypatch.setattr(survey, "time_network", times)
    monkeypatch.setattr("cruciform.budgets.network_time.time_network", times)


@pytest.mark.usefixtures("known_times")
def test_a_budget_is_a_converted_network(own: str, images: Any, tmp_path: Path) -> None:
    result = cruciform.budget(own, {"time": "90%", "macs": "70%"}, target="torch", input_size=SIZE)
    assert (result.measured_seconds, result.dense_seconds) == (4e-4, 8e-4)
    assert result.predicted_seconds <= 0.9 * result.plan.dense["seconds"]
    assert cruciform.profile(result.model, SIZE).macs == result.plan.predicted["MACs"]
    text = str(result)
    assert "measured: 0.4 ms, interleaved with the dense network's 0.8 ms" in text
    assert "<caption>" in result._repr_html_()
    out = result.save(tmp_path / "out")
    assert json.loads((out / "budget.json").read_text())["measured_seconds"] == 4e-4
    assert np.allclose(output(cruciform.load(out, make(own)), images), output(result.model, images), atol=1e-6)
    with pytest.raises(ConversionError, match="is converted already"):
        cruciform.budget(result.model, "90%", input_size=SIZE)


@pytest.mark.usefixtures("known_times")
def test_a_budget_of_a_trained_network_keeps_what_it_learned(own: str, images: Any, tmp_path: Path) -> None:
    trained = make(own)
    with torch.no_grad():  # crosses only: low rank loses nothing
        for place in (0, 2):
            trained[place].weight[:4, :, :, [0, 2]] = 0
            trained[place].weight[4:, :, [0, 2]] = 0
    save_model(trained, str(tmp_path / "w.safetensors"))
    result = cruciform.budget(own, {"macs": "60%"}, weights="w.safetensors", target="torch", input_size=SIZE)
    assert {layer.scheme for layer in result.plan.layers} == {"lr"}
    assert np.allclose(output(result.model, images), output(trained, images), atol=1e-4)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    options = {"input_size": 16, "num_classes": 3}
    model, report = cruciform.convert(cruciform.create_model("nin", **options), "lr", input_size=SIZE)
    from cruciform.store.directory import Base

    base, classes = Base("zoo:nin", options), ["a", "b", "c"]
    return cruciform.save(model, tmp_path / "nin-lr", report, base=base, preprocessing=PREPROCESSING, classes=classes)


@pytest.mark.slow
def test_predictions_for_arrays_need_no_file(directory: Path, tmp_path: Path) -> None:
    pictures = list(np.random.default_rng(0).integers(0, 255, size=(3, 16, 16, 3), dtype=np.uint8))
    options = cruciform.PredictOptions(top=2)
    found = cruciform.predict(directory, pictures, options=options)
    assert (found.inputs, found.errors, len(found.rows or ())) == (3, 0, 3)
    assert set((found.rows or ())[0]["class_names"]) < {"a", "b", "c"}
    opened = cruciform.open_network(directory)
    again = cruciform.predict(opened, pictures, options=options)
    artifact = cruciform.deploy(opened, target="torch", options=QUICK)
    deployed = cruciform.predict(artifact, pictures, options=options)
    for other in (again, deployed):
        assert [row["classes"] for row in other.rows or ()] == [row["classes"] for row in found.rows or ()]
    assert "3 images" in str(found)
    assert "<table>" in found._repr_html_()
    written = cruciform.predict(artifact, pictures, tmp_path / "out.parquet", options=options)
    assert (written.path, written.rows) == (tmp_path / "out.parquet", None)
    with pytest.raises(DataError, match="image 0 is float32 of shape .* give uint8 arrays"):
        cruciform.predict(directory, np.zeros((1, 3, 16, 16), np.float32))
    with pytest.raises(OptionError, match="workers on a Ray cluster need"):
        cruciform.predict(directory, pictures, options=cruciform.PredictOptions(workers=2))


def test_a_network_without_preprocessing_predicts_for_no_images(own: str) -> None:
    with pytest.raises(DeployError, match="does not say how images are preprocessed"):
        cruciform.predict(make(own), [], input_size=SIZE)


def test_a_report_of_a_module_and_of_a_directory(own: str, directory: Path, tmp_path: Path) -> None:
    for given, size, kind in ((make(own), SIZE, "network"), (directory, None, "model directory")):
        written = cruciform.report(given, tmp_path / f"{kind}.html", rounds=0, input_size=size)
        assert written.kind == kind
        assert written.path.stat().st_size == written.size
        assert "self-contained" in str(written)


@pytest.mark.slow
def test_a_suite_of_ones_own_is_benched(own: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def build(name: str) -> nn.Module:
        return make(own) if name == "dense" else cruciform.convert(make(own), name, input_size=SIZE).model

    monkeypatch.setattr(benches, "MOST_DRIFT", 99.0)
    monkeypatch.setattr(benches, "TARGETS", {"torch": benches.TARGETS.get("torch")})
    options = cruciform.BenchOptions(rounds=2, search_seconds=0)
    suite = Suite("dense", {"lr": "lr"}, SIZE, build)
    (found,) = cruciform.bench(suite, targets=["torch"], result=tmp_path / "bench.json", options=options)
    assert [row.network for row in found.rows] == ["lr"]
    assert "realised" in str(found)
    assert "<table>" in found._repr_html_()
    assert json.loads((tmp_path / "bench.json").read_text())["summary"]
    with pytest.raises(OptionError, match="unknown suite 'vg'. Did you mean 'vgg'"):
        cruciform.bench("vg")
