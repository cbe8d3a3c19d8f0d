"""Targets of 8 bits: close to PyTorch on real images, really in 8 bits, and an instruction where images are missing."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cruciform import convert
from cruciform.api.deploy import deploy
from cruciform.data.open_dataset import open_dataset
from cruciform.data.samples.source import Opening, Split
from cruciform.deployment.search.layer_forms import build_form, composite_layers
from cruciform.deployment.targets.library_output import TELEMETRY, without_telemetry
from cruciform.deployment.targets.target import TARGETS
from cruciform.errors import DeployError, OptionError

NAMES = ["onnxruntime-int8", "openvino-int8", "torch-int8"]
SIZE = (3, 32, 32)
CONVOLUTIONS, LINEAR = 6, 2  # of the network below


def network() -> nn.Module:
    torch.manual_seed(0)
    plain = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, ceil_mode=True),
        nn.Dropout(0.1), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AvgPool2d(4), nn.Flatten(), nn.Linear(512, 32),
        nn.ReLU(), nn.Linear(32, 10),
    )  # fmt: skip
    return convert(plain, "lr-join").model


def read(split: Split, count: int) -> tuple[Tensor, Tensor]:
    if "CRUCIFORM_DATA" not in os.environ:
        pytest.skip("needs real images: set CRUCIFORM_DATA to the folder that holds cifar-10-batches-bin")
    source = open_dataset("cifar10", Opening(Path("cifar-10-batches-bin"), split))
    samples = [source[number] for number in range(count)]
    pixels = torch.from_numpy(np.stack([sample.image for sample in samples])).float()
    return ((pixels - 120) / 60).movedim(-1, 1).contiguous(), torch.tensor([sample.label for sample in samples])


@pytest.fixture(scope="module")
def trained() -> nn.Module:
    """A network that has seen CIFAR-10 for a few seconds: the first guess of one that has not would mean nothing."""
    images, labels = read("train", 3200)
    model = network().train()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for step in range(100):
        here = slice(step % 50 * 64, (step % 50 + 1) * 64)
        optimizer.zero_grad()
        F.cross_entropy(model(images[here]), labels[here]).backward()
        optimizer.step()
    return model.eval()


def write(name: str, model: nn.Module, folder: Path, images: Any) -> None:
    graph = build_form(model, dict.fromkeys(composite_layers(model), "tail"), SIZE)
    TARGETS.get(name).with_images(images).write(graph, SIZE, folder, batch=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_eight_bits_are_close_to_pytorch_on_real_images(
    name: str, trained: nn.Module, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = {key: value.clone() for key, value in trained.state_dict().items()}
    images, labels = read("test", 1000)
    with torch.no_grad():
        expected = trained(images).numpy()
    right = (expected.argmax(1) == labels.numpy()).mean()
    assert right > 0.3, "the network has learnt something"
    write(name, trained, tmp_path, read("train", 100)[0].numpy())
    run = TARGETS.get(name).load(tmp_path, threads=1)
    found = np.concatenate([run(part.numpy()) for part in images.split(64)])
    reach = float(expected.max() - expected.min())
    assert 0 < np.abs(found - expected).max() / reach < TARGETS.get(name).tolerance
    assert (found.argmax(1) == expected.argmax(1)).mean() > 0.95
    assert (found.argmax(1) == labels.numpy()).mean() > right - 0.02
    assert all(torch.equal(before[key], value) for key, value in trained.state_dict().items())
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_openvinos_artifact_is_in_eight_bits(trained: nn.Module, tmp_path: Path) -> None:
    import openvino

    write("openvino-int8", trained, tmp_path, read("train", 32)[0].numpy())
    model = openvino.Core().read_model(tmp_path / "model.xml")
    types = [node.get_type_name() for node in model.get_ops()]
    assert types.count("FakeQuantize") >= LINEAR + 1
    weights = [
        node for node in model.get_ops() if node.get_type_name() == "Constant"
        and node.get_output_element_type(0) == openvino.Type.i8
    ]  # fmt: skip
    assert len(weights) == CONVOLUTIONS + LINEAR
    running = openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"}).get_runtime_model()
    computed = [
        node.get_rt_info()["runtimePrecision"].astype(str) for node in running.get_ops()
        if node.get_rt_info()["layerType"].astype(str) == "Convolution"
    ]  # fmt: skip
    assert len(computed) == CONVOLUTIONS
    assert set(computed) <= {"i8", "u8"}, "behind the pooling, too"


@pytest.mark.slow
def test_onnx_runtimes_artifact_is_in_eight_bits(trained: nn.Module, tmp_path: Path) -> None:
    import onnx
    import onnxruntime

    write("onnxruntime-int8", trained, tmp_path, read("train", 32)[0].numpy())
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "running.onnx")
    options.log_severity_level = 3  # it warns that the optimized file is for this machine only
    onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), options, providers=["CPUExecutionProvider"])
    kinds = [node.op_type for node in onnx.load(tmp_path / "running.onnx").graph.node]
    assert kinds.count("QLinearConv") == CONVOLUTIONS
    assert not {"Conv", "FusedConv", "Gemm", "MatMul"} & set(kinds), kinds


@pytest.mark.slow
def test_torchs_artifact_is_in_eight_bits(trained: nn.Module, tmp_path: Path) -> None:
    write("torch-int8", trained, tmp_path, read("train", 32)[0].numpy())
    with zipfile.ZipFile(tmp_path / "model.pt2") as archive:
        (wrapper,) = [name for name in archive.namelist() if name.endswith("wrapper.cpp")]
        source = archive.read(wrapper).decode()
    calls = re.findall(r"aoti_torch_cpu\w*?_(qconv_pointwise|qlinear_pointwise|convolution|addmm)\w*\(", source)
    assert calls.count("qconv_pointwise") == CONVOLUTIONS
    assert calls.count("qlinear_pointwise") == LINEAR
    assert not {"convolution", "addmm"} & set(calls)


@pytest.mark.parametrize("name", NAMES)
def test_without_images_the_error_says_how_to_give_some(name: str, tmp_path: Path) -> None:
    target = TARGETS.get(name)
    assert target.needs_images
    graph = torch.fx.symbolic_trace(nn.Identity())
    with pytest.raises(DeployError, match=rf"{name} is calibrated on images, and has none.* DeployOptions\(images="):
        target.write(graph, SIZE, tmp_path, batch=1)
    with pytest.raises(DeployError, match="have size 3×30×30, but the network takes 3×32×32"):
        target.with_images(np.zeros((4, 3, 30, 30), np.float32)).write(graph, SIZE, tmp_path, batch=1)
    assert not list(tmp_path.iterdir())


def test_a_network_without_images_can_not_be_calibrated(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="is calibrated on images, and nin has none; deploy a run"):
        deploy("nin", tmp_path / "out", target=NAMES[0])


def test_targets_that_need_no_images_stay_as_they_are() -> None:
    target = TARGETS.get("torch")
    assert not target.needs_images
    assert target.with_images(np.zeros((1, *SIZE))) is target


def test_telemetry_cannot_be_imported_where_it_is_not_wanted() -> None:
    before = sys.modules.get(TELEMETRY)
    with without_telemetry(), pytest.raises(ImportError):
        __import__(TELEMETRY)
    assert sys.modules.get(TELEMETRY) is before


@pytest.mark.slow
@pytest.mark.parametrize("imported_before", [False, True])
def test_onnx_runtime_leaves_no_identifier_of_this_machine(imported_before: bool, tmp_path: Path) -> None:
    """Since 1.29 it reports its use; imported by others it must be seen doing so, or this test shows nothing."""
    code = (
        f"{'import onnxruntime' if imported_before else ''}\n"
        "from pathlib import Path; import sys; from torch import nn\n"
        "from cruciform.deployment.targets.target import TARGETS\n"
        "target, folder = TARGETS.get('onnxruntime'), Path(sys.argv[1])\n"
        "target.write(nn.Sequential(nn.Conv2d(3, 4, 3)).eval(), (3, 8, 8), folder, batch=1)\n"
        "target.load(folder, threads=1)\n"
    )
    bare = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}  # it reports nothing where variables tell of a CI
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, env=bare)
    assert (tmp_path / ".cache" / "Microsoft").exists() == imported_before


@pytest.mark.slow
def test_the_list_of_targets_loads_no_quantizer() -> None:
    loaded = "{'nncf', 'torchao', 'openvino'} & set(sys.modules)"
    code = f"import sys, cruciform.deployment.targets.target; print(*{loaded})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_blocks_without_telemetry_may_lie_within_each_other() -> None:
    with without_telemetry():
        with without_telemetry():
            pass
        assert sys.modules[TELEMETRY] is None, "the outer block still holds"
    assert sys.modules.get(TELEMETRY, True) is not None
