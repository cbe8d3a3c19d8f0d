"""Predictions: a row for every input, the same bytes however often it was interrupted."""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import pytest
import torch
from PIL import Image as Pillow
from typer.testing import CliRunner

from cruciform.cli.main import app
from cruciform.data.shard_write import list_items, write_shards
from cruciform.data.sharding.shard_options import ShardOptions
from cruciform.errors import DeployError, OptionError, RunError, StoreError
from cruciform.files import new_directory
from cruciform.prediction import predictor
from cruciform.prediction.inputs import FolderInputs, open_inputs
from cruciform.prediction.parts import Parts
from cruciform.prediction.predict_images import _Worker, run_prediction
from cruciform.prediction.predict_rows import PredictionSettings, predict_rows
from cruciform.prediction.predictor import Predictor, Preparation, open_predictor, read_preparation
from cruciform.prediction.request import Request
from cruciform.training.engine.trained_run import trained_network

COUNT = 23
ASKING = PredictionSettings(top=3, batch=4, part=5)


def test_every_image_gets_the_networks_own_answer(images: Path, run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    found = run_prediction(Request(str(run), str(images / "val"), str(out)), ASKING)
    assert (found.inputs, found.errors, found.computed, found.path) == (COUNT, 0, 5, out)
    rows = parquet.read_table(out).to_pylist()
    assert [row["number"] for row in rows] == list(range(COUNT))
    assert [row["name"] for row in rows] == sorted(
        path.relative_to(images / "val").as_posix() for path in (images / "val").rglob("*.png")
    )
    trained = trained_network(run)
    with Pillow.open(images / "val" / rows[7]["name"]) as image:
        pixels = np.asarray(image.convert("RGB").resize((32, 36), Pillow.Resampling.BILINEAR))[2:34]
    mean, deviation = np.array([125.3, 123.0, 113.9]), np.array([63.0, 62.1, 66.7])
    x = torch.tensor((pixels - mean) / deviation, dtype=torch.float32).movedim(-1, 0)[None]
    with torch.no_grad():
        shares = trained.model(x).softmax(1)[0]
    assert rows[7]["classes"] == shares.argsort(descending=True)[:3].tolist()
    assert rows[7]["class_names"] == [f"class{number}" for number in rows[7]["classes"]]
    assert rows[7]["scores"] == pytest.approx(shares.sort(descending=True).values[:3].tolist(), abs=1e-5)
    assert not out.with_name("out.parquet.parts").exists()


def test_interrupted_predictions_go_on_and_come_to_the_same_bytes(images: Path, run: Path, tmp_path: Path) -> None:
    class Stop(Exception):  # noqa: N818
        pass

    whole, broken = tmp_path / "whole.parquet", tmp_path / "broken.parquet"
    run_prediction(Request(str(run), str(images / "val"), str(whole)), ASKING)

    def stop_at(part: int) -> None:
        def on_progress(done: int, of: int) -> None:
            if done == part:
                raise Stop

        with pytest.raises(Stop):
            run_prediction(Request(str(run), str(images / "val"), str(broken)), ASKING, on_progress=on_progress)

    stop_at(1)
    stop_at(3)
    with pytest.raises(RunError, match="has parts of other inputs, another network or other options"):
        run_prediction(Request(str(run), str(images / "val"), str(broken)), ASKING._replace(top=2))
    found = run_prediction(Request(str(run), str(images / "val"), str(broken)), ASKING)
    assert found.computed == 2
    assert broken.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("changed", ["network", "inputs"])
def test_a_worker_that_finds_something_else_makes_no_part(
    images: Path, run: Path, tmp_path: Path, changed: str
) -> None:
    """Else its numbers would be of other images than the parts that are there already."""
    request = Request(str(run), str(images / "val"), str(tmp_path / "out.parquet"))
    predictor = open_predictor(request.model)
    now = {"network": predictor.identity, "inputs": open_inputs(request.inputs, short_side=32).identity}
    worker = _Worker(tuple(request), tuple(ASKING), tuple({**now, changed: "before"}.values()))
    with pytest.raises(RunError, match="has changed since the prediction started"):
        worker({"item": [0]})


def test_what_can_not_be_read_has_a_row_that_says_why(images: Path, run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "images"
    shutil.copytree(images / "val", folder)
    (folder / "class0" / "00.png").write_bytes(b"no image")
    ended = CliRunner().invoke(
        app, ["predict", str(run), str(folder), "-o", str(tmp_path / "out.parquet"), "--part", "10", "--json"]
    )
    assert ended.exit_code == 1
    assert json.loads(ended.output)["errors"] == 1
    first, second, *_ = parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert first["classes"] is None
    assert "can't be decoded" in first["error"]
    assert (second["error"], len(second["classes"])) == (None, 3)


def test_a_link_to_nothing_has_its_row(images: Path, run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "images"
    shutil.copytree(images / "val", folder)
    (folder / "class0" / "zz.png").symlink_to("nowhere.png")
    found = run_prediction(Request(str(run), str(folder), str(tmp_path / "out.parquet")), ASKING)
    assert (found.inputs, found.errors) == (COUNT + 1, 1)


def test_parts_that_nothing_says_the_network_of_are_made_anew(images: Path, run: Path, tmp_path: Path) -> None:
    parts = Parts(tmp_path / "out.parquet", 5, ASKING)
    parts.begin({"network": "a"})
    data = b"of another network"
    part = tmp_path / "out.parquet.parts" / f"00000000-{hashlib.sha256(data).hexdigest()}.parquet"
    part.write_bytes(data)
    assert parts.missing() == []
    (part.parent / "job.json").unlink()  # a kill while parts were being removed
    parts.begin({"network": "b"})
    assert parts.missing() == [0]


def test_a_folder_is_no_file_to_write(run: Path, images: Path, tmp_path: Path) -> None:
    ended = CliRunner().invoke(app, ["predict", str(run), str(images / "val"), "-o", str(tmp_path)])
    assert "is a directory; give a file" in str(ended.exception)


def test_shards_and_folders_get_the_same_answers(images: Path, run: Path, tmp_path: Path) -> None:
    write_shards(list_items(images / "val"), tmp_path / "shards", ShardOptions(size=20_000, seed=None))
    outs = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for out, inputs in zip(outs, (images / "val", tmp_path / "shards"), strict=True):
        run_prediction(Request(str(run), str(inputs), str(out)), ASKING)
    assert parquet.read_table(outs[0]).equals(parquet.read_table(outs[1]))


def test_a_network_that_does_not_say_how_images_are_prepared_is_refused(tmp_path: Path) -> None:
    with new_directory(tmp_path / "artifact", manifest={"format": 1}) as part:
        (part / "deploy.json").write_text('{"preparation": null}')
    with pytest.raises(DeployError, match="does not say how images are preprocessed"):
        open_predictor(str(tmp_path / "artifact"))
    with pytest.raises(
        OptionError, match="no such file or directory.* Predict with an artifact of 'cruciform deploy', a run"
    ):
        open_predictor(str(tmp_path / "absent"))
    with pytest.raises(OptionError, match="whitened by GCN and ZCA"):
        read_preparation({"eval_transforms": [], "data": {"whiten": {"scale": 55}}})


@pytest.mark.parametrize("key", ["preprocessing", "preparation"])
@pytest.mark.parametrize(
    "said",
    [
        "[1]",
        '{"data": 3, "eval_transforms": []}',
        '{"data": {"mean": "red"}, "eval_transforms": []}',
        '{"data": {"mean": [NaN]}, "eval_transforms": []}',
        '{"data": {"std": [0]}, "eval_transforms": []}',
        '{"data": {"mean": [1, 2]}, "eval_transforms": []}',
        '{"data": {"path": "/etc"}, "eval_transforms": []}',
        '{"data": {"short_side": 1e99}, "eval_transforms": []}',
        '{"data": {}, "eval_transforms": [{"kind": "os.system"}]}',
        '{"data": {}, "eval_transforms": [], "code": 1}',
    ],
)
def test_a_preparation_that_is_none_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, key: str
) -> None:
    monkeypatch.setattr(predictor, "open_artifact", lambda *_, **__: None)
    with new_directory(tmp_path / "artifact", manifest={"format": 1}) as part:
        (part / "deploy.json").write_text(f'{{"{key}": {said}, "input_size": [3, 2, 2]}}')
    with pytest.raises(
        (DeployError, StoreError),
        match="the preprocessing that .* names can't be used|preprocessing must have the keys",
    ):
        open_predictor(str(tmp_path / "artifact"))


@pytest.mark.parametrize("damage", [b"", b"PAR1 nothing PAR1"])
def test_a_part_that_was_damaged_is_made_anew(run: Path, images: Path, tmp_path: Path, damage: bytes) -> None:
    whole, out = tmp_path / "whole.parquet", tmp_path / "out.parquet"
    request = Request(str(run), str(images / "val"), str(whole))
    run_prediction(request, ASKING)
    original = Parts.join
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Parts, "join", lambda self: 0)  # interrupted when all parts are there
        run_prediction(request._replace(out=str(out)), ASKING)
    part = sorted(out.with_name("out.parquet.parts").glob("0*.parquet"))[2]
    part.write_bytes(damage)
    assert Parts.join is original
    assert run_prediction(request._replace(out=str(out)), ASKING).computed == 1
    assert out.read_bytes() == whole.read_bytes()


def test_numbers_that_are_not_finite_are_no_prediction(tmp_path: Path) -> None:
    for name in ("a.png", "b.png", "c.png"):
        Pillow.fromarray(np.zeros((2, 2, 3), np.uint8)).save(tmp_path / name)
    logits = np.array([[0.0, np.nan, 1.0], [0.0, 2.0, 1.0], [0.0, np.inf, 1.0]])
    plain = Preparation(None, (), np.zeros(1, np.float32), np.ones(1, np.float32))
    predictor = Predictor(lambda images: logits[: len(images)], plain, (3, 2, 2), "network")
    rows = predict_rows(predictor, FolderInputs(tmp_path, None), range(3), PredictionSettings(1, 3, 3))
    assert [row["classes"] for row in rows] == [None, [1], None]
    assert [row["error"] is None for row in rows] == [False, True, False]
