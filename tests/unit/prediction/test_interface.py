"""Model directories say how images are preprocessed and what the classes are called: nothing else is needed."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
import pytest
from PIL import Image as Pillow
from typer.testing import CliRunner

from cruciform.api.evaluate import evaluate
from cruciform.cli.main import app
from cruciform.conversion.convert import plan_conversion
from cruciform.errors import DataError, DeployError, OptionError, RunError, StoreError
from cruciform.models.zoo import create_model
from cruciform.prediction.predict_images import run_prediction
from cruciform.prediction.predict_rows import PredictionSettings
from cruciform.prediction.predictor import open_predictor
from cruciform.prediction.request import Request
from cruciform.store.directory import Base, interface_of, load, save
from cruciform.training.engine.trained_run import trained_network
from cruciform.training.run.checkpoint import VALUES

CLASSES = ("class0", "class1", "class2")
ASKING = PredictionSettings(top=3, batch=4, part=50)
OPTIONS = {"widths": [8, 8, 8], "num_classes": 3}


@pytest.fixture(scope="module")
def directory(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The network of the run, as a model directory."""
    trained = trained_network(run)
    report = plan_conversion(trained.model, "full", input_size=trained.input_size)
    folder = tmp_path_factory.mktemp("saved") / "model"
    return save(trained.model, folder, report, base=Base("cifar_fast_lr", OPTIONS), **trained.interface._asdict())


def rewrite(directory: Path, to: Path, **changes: Any) -> Path:
    shutil.copytree(directory, to)
    card = {**json.loads((to / "model.json").read_text()), **changes}
    (to / "model.json").write_text(json.dumps({key: value for key, value in card.items() if value != "absent"}))
    return to


def rows(model: Path, images: Path, out: Path) -> list[dict[str, Any]]:
    run_prediction(Request(str(model), str(images), str(out)), ASKING)
    found: list[dict[str, Any]] = parquet.read_table(out).to_pylist()
    return found


def test_a_run_knows_the_names_of_its_classes(run: Path) -> None:
    assert trained_network(run).interface.classes == CLASSES


def test_a_model_directory_predicts_as_its_run_does(run: Path, directory: Path, images: Path, tmp_path: Path) -> None:
    assert interface_of(directory).classes == CLASSES
    ours = rows(directory, images / "val", tmp_path / "a.parquet")
    theirs = rows(run, images / "val", tmp_path / "b.parquet")
    assert [row["class_names"] for row in ours] == [row["class_names"] for row in theirs]
    # In another order of memory sums differ in their last bits.
    assert np.array([row["scores"] for row in ours]) == pytest.approx(np.array([row["scores"] for row in theirs]))
    assert all(set(row["class_names"]) == set(CLASSES) for row in ours)


def test_a_run_of_an_older_version_has_numbers_for_names(run: Path, images: Path, tmp_path: Path) -> None:
    old = tmp_path / "old"
    shutil.copytree(run, old)
    for state in old.glob(f"checkpoints/*/{VALUES}"):
        values = json.loads(state.read_text())
        del values["data"]["class_names"]
        state.write_text(json.dumps(values))
        _sign(state.parent)
    row = rows(old, images / "val", tmp_path / "out.parquet")[0]
    assert (row["class_names"], len(row["classes"])) == (None, 3)


def _sign(folder: Path) -> None:
    import hashlib

    from cruciform.files import MANIFEST, _checksum

    data = json.loads((folder / MANIFEST).read_text())
    del data["checksum"]
    data["files"] = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in data["files"]}
    (folder / MANIFEST).write_text(json.dumps({**data, "checksum": _checksum(data)}))


def test_a_directory_of_an_older_version_is_read_and_says_what_it_lacks(directory: Path, tmp_path: Path) -> None:
    old = rewrite(directory, tmp_path / "old", preprocessing="absent", classes="absent")
    load(old)
    assert interface_of(old) == (None, None)
    with pytest.raises(DeployError, match="does not say how images are preprocessed"):
        open_predictor(str(old))
    with pytest.raises(RunError, match="the preprocessing of .* is not known; give a recipe"):
        evaluate(old, data="x")
    # And it is still known for one of ours, which may be replaced.
    model = load(old)
    save(model, old, plan_conversion(model, "full"), base=Base("cifar_fast_lr", OPTIONS))


@pytest.mark.parametrize("names", [[], "abc", [1, 2, 3], ["a" * 2000], {"a": 1}, [["a"]], 3])
def test_names_that_are_none_are_refused(directory: Path, tmp_path: Path, names: object) -> None:
    with pytest.raises(StoreError, match="classes is a list of at most"):
        open_predictor(str(rewrite(directory, tmp_path / "x", classes=names)))


def test_as_many_names_as_outputs(directory: Path, images: Path, tmp_path: Path) -> None:
    other = rewrite(directory, tmp_path / "x", classes=["a", "b"])
    with pytest.raises(DeployError, match="output has shape \\(3,\\) for an image, but 2 class names"):
        rows(other, images / "val", tmp_path / "out.parquet")


def test_a_network_that_images_of_other_sizes_are_whitened_for_is_refused_as_before(
    directory: Path, tmp_path: Path
) -> None:
    own = interface_of(directory).preprocessing or {}
    whitened = {**own, "data": {**own["data"], "whiten": {"scale": 55.0}}}
    with pytest.raises(OptionError, match="whitened by GCN and ZCA"):
        open_predictor(str(rewrite(directory, tmp_path / "x", preprocessing=whitened)))


def test_a_directory_is_evaluated_on_images_by_its_own_preprocessing(
    run: Path, directory: Path, images: Path, tmp_path: Path
) -> None:
    shutil.copytree(images / "val", tmp_path / "data" / "val")  # no training data is needed
    ours, theirs = evaluate(directory, data=str(tmp_path / "data")), evaluate(run)
    assert ours.evaluation.confusion == theirs.evaluation.confusion
    (tmp_path / "data" / "val" / "class1").rename(tmp_path / "data" / "val" / "class9")
    with pytest.raises(
        DataError, match="class 1 of 3 of the network is 'class1', but class 1 of 3 of the data is 'class2'"
    ):
        evaluate(directory, data=str(tmp_path / "data"))
    with pytest.raises(OptionError, match="is not a run; give either data .* or recipe"):
        evaluate(directory)


@pytest.mark.slow
def test_what_is_deployed_from_a_directory_gives_classes_by_name(directory: Path, images: Path, tmp_path: Path) -> None:
    words = ["deploy", str(directory), "-o", str(tmp_path / "onnx"), "--rounds", "1", "--search-seconds", "0"]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0
    said = json.loads((tmp_path / "onnx" / "deploy.json").read_text())
    assert tuple(said["classes"]) == CLASSES
    assert said["preprocessing"] == interface_of(directory).preprocessing
    ours = rows(tmp_path / "onnx", images / "val", tmp_path / "a.parquet")
    theirs = rows(directory, images / "val", tmp_path / "b.parquet")
    assert [row["class_names"] for row in ours] == [row["class_names"] for row in theirs]


def test_what_is_converted_carries_what_its_library_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from cruciform.sources import timm
    from cruciform.sources.network_library import SOURCES, NetworkLibrary

    config = {"input_size": (3, 16, 16), "mean": (0.5, 0.5, 0.5), "std": (0.25, 0.25, 0.25), "crop_pct": 0.8}

    def build(name: str, options: Any) -> Any:
        model = create_model("nin", input_size=16, num_classes=3)
        model.pretrained_cfg = config
        return model

    library = NetworkLibrary(lambda: ["net"], build, lambda name, model: (3, 16, 16), timm._preprocessing)
    monkeypatch.setattr(SOURCES, "_items", {**SOURCES._items, "mine": library})
    done = CliRunner().invoke(app, ["convert", "mine:net", "-o", str(tmp_path / "x")], catch_exceptions=False)
    assert done.exit_code == 0
    data = {"short_side": 20, "mean": [127.5] * 3, "std": [63.75] * 3}
    prepare = [{"kind": "center-crop", "size": 16}]
    assert interface_of(tmp_path / "x") == ({"eval_transforms": prepare, "data": data}, None)
    predictor = open_predictor(str(tmp_path / "x"))
    assert predictor.prepare(np.full((20, 30, 3), 255, np.uint8)) == pytest.approx(np.full((3, 16, 16), 2.0))


@pytest.mark.parametrize("wrong", ["model", "images", "output"])
def test_inputs_are_checked_before_packages_are_asked_for(
    wrong: str, directory: Path, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = {"model": str(directory), "images": str(images), "output": str(tmp_path / "x.parquet")}
    words[wrong] = str(tmp_path / "nowhere" / "x.parquet")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    monkeypatch.delitem(__import__("sys").modules, "cruciform.prediction.parts", raising=False)
    done = CliRunner().invoke(app, ["predict", words["model"], words["images"], "-o", words["output"]])
    assert isinstance(done.exception, OptionError | DataError)
    assert "nowhere" in str(done.exception)


def test_an_image_of_another_size_is_classified_by_the_shipped_network(tmp_path: Path) -> None:
    shipped = Path(__file__).parents[3] / "models" / "cifar_fast_cross"
    (tmp_path / "images").mkdir()
    for name, size in (("own.png", (32, 32)), ("large.jpg", (300, 200)), ("small.png", (20, 30))):
        Pillow.new("RGB", size, (10, 90, 200)).save(tmp_path / "images" / name)
    found = rows(shipped, tmp_path / "images", tmp_path / "out.parquet")
    assert [row["error"] for row in found] == [None] * 3
    assert {row["class_names"][0] for row in found} == {found[0]["class_names"][0]}
