"""Inputs that once crashed, hung or were taken for good: each is refused, with an error of the library's own."""

import hashlib
import json
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image as Pillow
from torch import nn
from typer.testing import CliRunner

from cruciform.cli.main import app
from cruciform.conversion.convert import Rules, apply_conversion_
from cruciform.data.samples.source import Opening
from cruciform.data.sets.folder import FolderSource, decode, read_image
from cruciform.data.sets.shards import ShardSource
from cruciform.data.sets.volumes import open_volumes
from cruciform.data.shard_write import list_items, write_shards
from cruciform.data.sharding.shard_index import INDEX, MANIFEST, Manifest
from cruciform.data.sharding.shard_options import ShardOptions
from cruciform.data.sharding.storage import open_storage
from cruciform.deployment.artifact import open_artifact
from cruciform.errors import (
    BadSampleError,
    CheckpointError,
    DamagedError,
    DataError,
    DeployError,
    OptionError,
    PlanError,
    RecipeError,
    StoreError,
    first_line,
)
from cruciform.files import _checksum, new_directory, read_manifest, write_json
from cruciform.models.zoo import create_model
from cruciform.plan import LayerPlan
from cruciform.prediction.inputs import FolderInputs
from cruciform.sources.build_network import build_network
from cruciform.store.directory import CARD, Base, load, save
from cruciform.training.recipe.cookbook import load_recipe
from cruciform.training.run.checkpoint import Checkpoint, Checkpoints
from cruciform.training.run.checkpoint import load as load_checkpoint
from cruciform.training.run.journal import read_journal
from cruciform.training.run.progress import read_progress

DEEP = "[" * 100_000


def chunk(kind: bytes, data: bytes = b"") -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


@pytest.fixture
def jpeg(tmp_path: Path) -> bytes:
    Pillow.new("RGB", (64, 48)).save(tmp_path / "x.jpg", progressive=True)
    return (tmp_path / "x.jpg").read_bytes()


# Images


def test_an_image_that_is_long_and_thin_is_not_blown_up(tmp_path: Path) -> None:
    Pillow.new("RGB", (1, 65_000)).save(tmp_path / "thin.png")
    with pytest.raises(DataError, match="500×32500000 pixels"):
        read_image(tmp_path / "thin.png", 500)


@pytest.mark.parametrize("segment", [b"\xff\xfe\0\2", b"\xff\xe1\0\2", b"\xff"])
def test_a_jpeg_of_a_million_segments_is_not_walked_through(jpeg: bytes, segment: bytes) -> None:
    with pytest.raises(DataError, match="segments"):
        decode(jpeg[:2] + segment * 1_000_000 + jpeg[2:])


def test_a_png_of_a_million_chunks_is_not_walked_through(tmp_path: Path) -> None:
    Pillow.new("RGB", (8, 8)).save(tmp_path / "x.png")
    data = (tmp_path / "x.png").read_bytes()
    for place in (33, len(data) - 12):
        with pytest.raises(DataError, match="segments"):
            decode(data[:place] + chunk(b"prVt") * 1_000_000 + data[place:])


def test_a_jpeg_of_a_thousand_scans_is_not_decoded(jpeg: bytes) -> None:
    last = jpeg.rfind(b"\xff\xda")
    with pytest.raises(DataError, match="1,01. scans"):
        decode(jpeg[:-2] + jpeg[last:-2] * 1_000 + jpeg[-2:])
    assert decode(jpeg).shape == (48, 64, 3)


def test_neither_a_pipe_nor_a_device_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    os.mkfifo(tmp_path / "a" / "pipe.jpg")
    (tmp_path / "a" / "zero.jpg").symlink_to("/dev/zero")
    source = FolderSource(tmp_path, short_side=None)
    for number in range(2):
        with pytest.raises(BadSampleError, match="Not a regular file"):
            source[number]


def test_names_that_are_no_text_are_written_and_predicted_for(tmp_path: Path) -> None:
    folder = tmp_path / "images" / "a"
    folder.mkdir(parents=True)
    Pillow.new("RGB", (8, 8)).save(tmp_path / "x.png")
    (tmp_path / "x.png").rename(folder / os.fsdecode(b"\xff.png"))
    write_shards(list_items(tmp_path / "images"), tmp_path / "set", ShardOptions())
    assert ShardSource(open_storage(str(tmp_path / "set")))[0].label == 0
    inputs = FolderInputs(tmp_path / "images", None)
    assert inputs.name(0) == "a/�.png"
    assert inputs.identity


# Shards, tables, volumes


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    for index in range(6):
        path = tmp_path / "images" / f"class{index % 2}" / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Pillow.new("RGB", (4, 4), (index, 0, 0)).save(path)
    write_shards(list_items(tmp_path / "images"), tmp_path / "set", ShardOptions(size=200))
    return tmp_path / "set"


@pytest.mark.parametrize("field", ["label", "name_end", "offset", "shard", "length", "check"])
def test_no_field_of_an_index_can_change_unnoticed(shards: Path, field: str) -> None:
    records = np.load(shards / INDEX)
    records[2][field] ^= 1
    np.save(shards / INDEX, records)
    with pytest.raises(BadSampleError):
        ShardSource(open_storage(str(shards)))[2]


def test_records_can_not_change_places(shards: Path) -> None:
    records = np.load(shards / INDEX)
    records[[0, 1]] = records[[1, 0]]
    np.save(shards / INDEX, records)
    with pytest.raises(BadSampleError):
        ShardSource(open_storage(str(shards)))[0]


def test_an_offset_beyond_all_disks_is_a_bad_sample(shards: Path) -> None:
    records = np.load(shards / INDEX)
    records[0]["offset"] = 2**64 - 1
    np.save(shards / INDEX, records)
    with pytest.raises(BadSampleError, match="has an invalid record"):
        ShardSource(open_storage(str(shards)))[0]


def test_the_classes_of_a_manifest_can_not_change_unnoticed(shards: Path) -> None:
    text = (shards / MANIFEST).read_text()
    for old, new in (('"class0"', '"class9"'), ('"format": 2', '"format": 1')):
        with pytest.raises(DataError, match="its checksum does not match"):
            Manifest.from_json(text.replace(old, new), "it")


def test_a_set_of_the_first_format_is_still_read(shards: Path) -> None:
    from cruciform.data.sharding.shard_index import checksum

    source = ShardSource(open_storage(str(shards)))
    whole = [source.read(number) for number in range(6)]
    records = np.array(source.index.records)
    records["check"] = [checksum(data) for data in whole]
    np.save(shards / INDEX, records)
    data = json.loads((shards / MANIFEST).read_text())
    del data["checksum"]
    (shards / MANIFEST).write_text(json.dumps({**data, "format": 1}))
    old = ShardSource(open_storage(str(shards)))
    assert [old.read(number) for number in range(6)] == whole


@pytest.mark.parametrize(
    "text",
    [
        "path,label\na.png\n",
        "path,label\n,b\n",
        "path,label\na.png,\n",
        "path,label\n/etc/passwd,a\n",
        "path,label\na\0b.png,c\n",
        "path,label\n" + "x" * 200_000 + ".png,a\n",
    ],
)  # fmt: skip
def test_a_table_names_images_and_labels_or_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "list.csv").write_text(text)
    with pytest.raises(DataError):
        list_items(tmp_path / "list.csv")


def test_a_table_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_bytes(b"path,label\n\xff.png,a\n")
    with pytest.raises(DataError, match="can't be read as a table"):
        list_items(tmp_path / "list.csv")


@pytest.mark.parametrize(
    "labels", [np.array(["a", "b"]), np.zeros((2,), "f4"), np.zeros(0, "u1"), np.array([2**40] * 2)]
)
def test_labels_of_volumes_are_whole_numbers(tmp_path: Path, labels: Any) -> None:
    images = np.zeros((2, 3, 3, 3), np.uint8)
    np.savez(tmp_path / "x.npz", train_images=images, train_labels=labels)
    with pytest.raises(DataError):
        open_volumes(Opening(tmp_path / "x.npz", "train"))


def test_an_archive_that_unpacks_to_a_thousand_times_its_size_is_refused(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "x.npz", train_images=np.zeros((1, 300, 300, 300), np.uint8), train_labels=[0])
    with pytest.raises(DataError, match="unpacked"):
        open_volumes(Opening(tmp_path / "x.npz", "train"))


# Manifests, checkpoints, logs, recipes, plans


@pytest.mark.parametrize("files", [None, 3, ["a"], "a"])
def test_a_manifest_without_a_list_of_files_is_damaged(tmp_path: Path, files: object) -> None:
    data = {"format": 1} if files is None else {"format": 1, "files": files}
    (tmp_path / MANIFEST).write_text(json.dumps({**data, "checksum": _checksum(data)}))
    with pytest.raises(DamagedError, match="does not list"):
        read_manifest(tmp_path)


@pytest.mark.parametrize(("step", "values"), [([1], "{}"), ("1", "{}"), (2, "{}"), (1, "[]"), (1, DEEP)])
def test_a_forged_checkpoint_is_refused(tmp_path: Path, step: object, values: str) -> None:
    path = Checkpoints(tmp_path).save(1, {"a": torch.zeros(1)}, {})
    (path / "state.json").write_text(values)
    names = ("state.json", "state.safetensors")
    sums = {name: hashlib.sha256((path / name).read_bytes()).hexdigest() for name in names}
    data = {"format": 1, "step": step, "files": sums}
    (path / MANIFEST).write_text(json.dumps({**data, "checksum": _checksum(data)}))
    with pytest.raises(CheckpointError):
        load_checkpoint(path)


@pytest.mark.parametrize("change", [{"step": 2}, {"step": "1"}, {"evaluated": -1}, {"loss": None}, {"bad_samples": "1"},
                                    {"plateau": {"a": 1}}, {"other": 1}, {"switched": 1}])  # fmt: skip
def test_a_progress_that_no_run_can_have_made_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    progress = {"step": 1, "evaluated": 0, "loss": 0.0, "samples": 0, "seconds": 0.0, "bad_steps": 0,
                "bad_samples": [], "plateau": {}}  # fmt: skip
    assert read_progress(Checkpoint(1, {}, {"progress": progress}, tmp_path)).step == 1
    with pytest.raises(CheckpointError):
        read_progress(Checkpoint(1, {}, {"progress": {**progress, **change}}, tmp_path))
    with pytest.raises(CheckpointError):
        read_progress(Checkpoint(1, {}, {}, tmp_path))


@pytest.mark.parametrize(
    "line", [DEEP, "{}", '{"event": 1}', '{"event": "start", "step": "x"}', '{"event": "start", "step": null}']
)
def test_a_line_of_a_log_that_is_none_of_ours_is_passed_over(tmp_path: Path, line: str) -> None:
    good = '{"event": "step", "step": 1}'
    (tmp_path / "log.jsonl").write_text(f"{good}\n{line}\n")
    assert read_journal(tmp_path / "log.jsonl") == [json.loads(good)]


@pytest.mark.parametrize("value", ["9" * 5_000, "[" * 5_000])
def test_a_value_that_toml_can_not_hold_is_refused(value: str) -> None:
    with pytest.raises(RecipeError):
        load_recipe("nin_cifar10", [f"epochs={value}"])


def test_a_plan_of_a_hundred_thousand_brackets_is_refused() -> None:
    with pytest.raises(PlanError):
        LayerPlan.from_json(DEEP)


# Networks


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    options = {"widths": [4, 4, 4]}
    model, report = apply_conversion_(create_model("cifar_fast", **options), Rules("lr", input_size=(3, 32, 32)))
    return save(model, tmp_path / "model", report, base=Base("cifar_fast", options))


def test_a_card_can_not_ask_for_more_memory_than_its_weights_have(directory: Path) -> None:
    assert isinstance(load(directory), nn.Module)
    card = json.loads((directory / CARD).read_text())
    card["base"]["options"]["num_classes"] = 1_000
    (directory / CARD).write_text(json.dumps(card))
    with pytest.raises(StoreError, match="do not fit"):
        load(directory)


def test_a_card_of_a_hundred_thousand_brackets_is_refused(directory: Path) -> None:
    (directory / CARD).write_text(DEEP)
    with pytest.raises(StoreError):
        load(directory)


@pytest.mark.parametrize("option", ["pretrained", "checkpoint_path", "weights", "pretrained_cfg"])
def test_an_option_can_neither_fetch_weights_nor_read_a_file(option: str) -> None:
    with pytest.raises(OptionError, match="without trained weights"):
        build_network("cifar_fast", {option: "http://127.0.0.1/x"})


def test_an_option_that_a_library_stumbles_over_is_named() -> None:
    with pytest.raises(OptionError):
        build_network("cifar_fast", {"widths": 3})


def artifact(folder: Path, report: object, model: bytes = b"no model") -> Path:
    with new_directory(folder, manifest={"format": 1}) as part:
        (part / "model.onnx").write_bytes(model)
        write_json(part / "deploy.json", report)
    return folder


@pytest.mark.parametrize("report", [[], {}, {"target": []}, {"target": "onnxruntime"}, 3])
def test_an_artifact_that_no_engine_opens_is_refused(tmp_path: Path, report: object) -> None:
    pytest.importorskip("onnxruntime")
    with pytest.raises((DeployError, LookupError)):
        open_artifact(artifact(tmp_path / "a", report))


@pytest.mark.parametrize("place", ["../secret", "inside.bin"])
def test_an_artifact_with_weights_in_other_files_is_refused(tmp_path: Path, place: str) -> None:
    onnx = pytest.importorskip("onnx")
    weights = onnx.numpy_helper.from_array(np.ones(4, np.float32), "w")
    weights.ClearField("raw_data")
    weights.data_location = onnx.TensorProto.EXTERNAL
    weights.external_data.add(key="location", value=place)
    node = onnx.helper.make_node("Constant", [], ["y"], value=weights)  # not among the initializers
    output = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [4])
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", [], [output]))
    with pytest.raises(DeployError, match="refers to other files"):
        open_artifact(artifact(tmp_path / "a", {"target": "onnxruntime"}, model.SerializeToString()))


def test_an_artifact_of_another_format_is_refused(tmp_path: Path) -> None:
    with new_directory(tmp_path / "a", manifest={"format": 2}) as part:
        write_json(part / "deploy.json", {"target": "onnxruntime"})
    with pytest.raises(DeployError, match="has format 2; this version reads 1: deploy the network again"):
        open_artifact(tmp_path / "a")


def test_a_heading_takes_its_next_line_along() -> None:
    assert first_line(RuntimeError("Error(s) in loading:\n\tsize mismatch for fc\n\tmore")) == (
        "Error(s) in loading: size mismatch for fc"
    )
    assert [first_line(error) for error in (RuntimeError("one\ntwo"), RuntimeError("only:"), RuntimeError())] == [
        "one", "only:", "RuntimeError"
    ]  # fmt: skip


def test_a_file_is_not_replaced_by_what_its_name_does_not_say(tmp_path: Path) -> None:
    precious = tmp_path / "network.py"
    precious.write_text("mine")
    for words in (
        ["predict", "run", "images", "-o"],
        ["report", "nin", "-o"],
        ["coverage", "--result"],
        ["coverage", "--table"],
        ["coverage", "--journal"],
        ["bench", "--result"],
        ["race", "nin_cifar10", "--result"],
        ["paper", "timings", "--result"],
    ):
        ended = CliRunner().invoke(app, [*words, str(precious)])
        assert isinstance(ended.exception, OptionError), words
        assert "network.py would be written as ." in str(ended.exception)
    assert precious.read_text() == "mine"
