"""Networks out of files, mutated: model directories, plans, and artifacts of an engine with data outside of them."""

import hashlib
import json
import os
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from checkpoints import mutate_header
from kind import Silent, Trial, hostile
from mutate import change, mutate_bytes, mutate_json
from numpy.typing import NDArray

from cruciform.conversion.convert import Rules, apply_conversion_
from cruciform.deployment.artifact import REPORT, open_artifact
from cruciform.files import MANIFEST, _checksum, new_directory, write_json
from cruciform.models.zoo import create_model
from cruciform.plan import LayerPlan
from cruciform.prediction.predict_rows import PredictionSettings, predict_rows
from cruciform.prediction.predictor import open_predictor
from cruciform.schemes import make_plan
from cruciform.spec import ConvSpec
from cruciform.store.directory import CARD, WEIGHTS, Base, load, save

OPTIONS = {"widths": [4, 4, 4]}
SECRET = 1234.5


def prepare_directory(folder: Path) -> None:
    torch.manual_seed(0)
    model = create_model("cifar_fast", **OPTIONS)
    model, report = apply_conversion_(model, Rules("lr", input_size=(3, 32, 32)))
    data = {"short_side": 32, "mean": [125.3, 123.0, 113.9], "std": [63.0, 62.1, 66.7]}
    preprocessing = {"eval_transforms": [{"kind": "center-crop", "size": 32}], "data": data}
    classes = [f"class{number}" for number in range(10)]
    base = Base("cifar_fast", OPTIONS)
    save(model, folder / "model", report, base=base, preprocessing=preprocessing, classes=classes)


class Grey:
    """One grey image."""

    identity = "grey"

    def __len__(self) -> int:
        return 1

    def name(self, number: int) -> str:
        return "grey"

    def image(self, number: int) -> NDArray[np.uint8]:
        return np.full((32, 40, 3), 128, np.uint8)


@cache
def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in load(folder / "model").state_dict().items()}


@hostile("model directories", 1_200, prepare_directory)
def attack_directory(trial: Trial) -> None:
    shutil.copytree(trial.seeds / "model", trial.scratch)
    card = json.loads((trial.scratch / CARD).read_text())
    weights = trial.scratch / WEIGHTS
    random = trial.random
    how = random.random()
    forged = how < 0.3
    if forged:
        weights.write_bytes(mutate_header(weights.read_bytes(), trial))
        card["weights"]["sha256"] = hashlib.sha256(weights.read_bytes()).hexdigest()
        (trial.scratch / CARD).write_text(json.dumps(card))
    elif how < 0.4:
        weights.write_bytes(mutate_bytes(weights.read_bytes(), random)[1])
    else:
        if how < 0.6:
            part = random.choice(("base", "layers", "preprocessing", "classes"))
            card[part] = change(card[part], random)
        (trial.scratch / CARD).write_bytes(mutate_json(card, random) if how >= 0.6 else json.dumps(card).encode())
    model = load(trial.scratch)
    predictor = open_predictor(str(trial.scratch))
    said = predict_rows(predictor, Grey(), range(1), PredictionSettings())[0]
    if forged:
        return
    if said["class_names"] is not None and not all(type(name) is str for name in said["class_names"]):
        raise Silent(f"classes are called {said['class_names']!r:.60}")
    saved = weights_of(trial.seeds)
    found = model.state_dict()
    if set(saved) != set(found) or not all(torch.equal(saved[name], found[name]) for name in saved):
        raise Silent("the network has other weights than were saved")


PLANS = [
    make_plan(ConvSpec(4, 8, (3, 3), padding=1), scheme).to_dict() for scheme in ("lr", "sf", "lr-join", "full")
] + [make_plan(ConvSpec(3, 6, (3, 3, 3)), "lr").to_dict(), make_plan(ConvSpec(4, 4, (5,), stride=2), "lr").to_dict()]


@hostile("plans", 2_000)
def attack_plan(trial: Trial) -> None:
    text = mutate_json(trial.random.choice(PLANS), trial.random)
    plan = LayerPlan.from_json(text.decode("utf-8", "replace"))
    if LayerPlan.from_json(plan.to_json()) != plan:
        raise Silent("a plan that was read is another one when it is written and read again")
    if type(plan.params) is not int or plan.params < 0:
        raise Silent(f"a plan has {plan.params!r} parameters")


def prepare_artifact(folder: Path) -> None:
    """Writes an artifact as 'cruciform deploy' does, of a network with one layer."""
    with new_directory(folder / "artifact", manifest={"format": 1}) as part:
        (part / "model.onnx").write_bytes(onnx_model().SerializeToString())
        write_json(part / REPORT, {"format": 1, "target": "onnxruntime", "input_size": [3, 2, 2]})
    (folder / "secret.bin").write_bytes(np.full(48, SECRET, np.float32).tobytes())


def onnx_model(place: str | None = None, **more: str) -> Any:
    """Returns a model of one layer, its weights inside, or in another file."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weights = numpy_helper.from_array(np.ones((12, 4), np.float32), "w")
    if place is not None:
        weights.ClearField("raw_data")
        weights.data_location = TensorProto.EXTERNAL
        for key, value in {"location": place, "length": "192", **more}.items():
            weights.external_data.add(key=key, value=value)
    graph = helper.make_graph(
        [helper.make_node("Flatten", ["x"], ["f"]), helper.make_node("MatMul", ["f", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 2, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
        [weights],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=onnx.IR_VERSION - 3)


def sign(folder: Path) -> None:
    """Makes all checksums of an artifact right, as a forger would."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST]
    sums = {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    data = {"format": 1, "files": sums}
    (folder / MANIFEST).write_text(json.dumps({**data, "checksum": _checksum(data)}))


@hostile("artifact manifests", 1_200, prepare_artifact)
def attack_artifact(trial: Trial) -> None:
    shutil.copytree(trial.seeds / "artifact", trial.scratch)
    random = trial.random
    how = random.random()
    if how < 0.3:
        path = trial.scratch / random.choice(("model.onnx", REPORT, MANIFEST))
        path.write_bytes(mutate_bytes(path.read_bytes(), random)[1])
    elif how < 0.6:
        path = trial.scratch / REPORT
        path.write_bytes(mutate_json(json.loads(path.read_text()), random))
        sign(trial.scratch)
    else:
        path = trial.scratch / MANIFEST
        data = json.loads(path.read_text())
        del data["checksum"]
        data = change(data, random)
        signed = {**data, "checksum": _checksum(data)} if isinstance(data, dict) else data
        path.write_text(json.dumps(signed))
    ask(trial)


def ask(trial: Trial) -> None:
    said = open_artifact(trial.scratch)(np.ones((1, 3, 2, 2), np.float32))
    if np.any(np.abs(said) > SECRET):
        raise Silent("weights were read from a file outside of the artifact")
    if said.shape != (1, 4) or not np.allclose(said, 12.0):
        raise Silent(f"the artifact says {said!r:.60}")


@hostile("ONNX files", 300, prepare_artifact)
def attack_onnx(trial: Trial) -> None:
    """Files of a forger: whatever they compute is theirs to say, but nothing breaks."""
    from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, RuntimeException

    shutil.copytree(trial.seeds / "artifact", trial.scratch)
    path = trial.scratch / "model.onnx"
    path.write_bytes(mutate_bytes(path.read_bytes(), trial.random)[1])
    sign(trial.scratch)
    engine = open_artifact(trial.scratch)
    try:
        engine(np.ones((1, 3, 2, 2), np.float32))
    except (Fail, InvalidArgument, RuntimeException, ValueError):
        return  # the engine refuses to compute


OUTSIDE = ("../secret.bin", "../../secret.bin", "/secret", "here.bin", "link/secret.bin", "hard.bin", "a\0b",
           "C:\\secret.bin", "secret.bin", "./../secret.bin", "/dev/zero", "/proc/self/environ", "", ".",
           "here.bin/../../secret.bin")  # fmt: skip
KEYS: tuple[dict[str, str], ...] = (
    {},
    {"offset": "0"},
    {"length": "99999999999999"},
    {"offset": "-8"},
    {"__class__": "x"},
)


@hostile("ONNX data outside", len(OUTSIDE) * len(KEYS), prepare_artifact)
def attack_outside(trial: Trial) -> None:
    place, keys = OUTSIDE[trial.number // len(KEYS)], KEYS[trial.number % len(KEYS)]
    folder = trial.scratch / "a" / "artifact"
    shutil.copytree(trial.seeds / "artifact", folder)
    secret = trial.seeds / "secret.bin"
    for outside in (trial.scratch, trial.scratch / "a"):
        shutil.copy(secret, outside / "secret.bin")
    if place == "/secret":
        place = str(secret)
    elif place.startswith("here.bin"):
        (folder / "here.bin").symlink_to(secret)
    elif place.startswith("link"):
        (folder / "link").symlink_to(secret.parent)
    elif place == "hard.bin":
        os.link(secret, folder / "hard.bin")
    elif place == "secret.bin":
        os.chdir(secret.parent)
    (folder / "model.onnx").write_bytes(onnx_model(place, **keys).SerializeToString())
    sign(folder)
    ask(trial._replace(scratch=folder))
