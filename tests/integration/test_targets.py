"""Every target computes what PyTorch does, for every form and number of images, on real images where there are."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from cruciform import convert, create_model
from cruciform.data.open_dataset import open_dataset
from cruciform.data.samples.source import Opening
from cruciform.deployment.search.layer_forms import FORMS, Form, build_form, composite_layers
from cruciform.deployment.targets.target import TARGETS

SIZE = (3, 32, 32)
TOLERANCE = {"openvino-bf16": 3e-2, "onnxruntime-int8": 0.1, "openvino-int8": 0.1, "torch-int8": 0.1}


def network(name: str) -> nn.Module:
    torch.manual_seed(0)
    if name != "converted":
        return create_model(name, num_classes=10, input_size=32).eval()
    blocks = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.GELU(), nn.Conv2d(16, 24, 5, stride=2, padding=2),
        nn.SiLU(), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 10),
    )  # fmt: skip
    return convert(blocks, "lr-join").model.eval()


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    """Real ones where they are: 512 of CIFAR-10's test set."""
    if "CRUCIFORM_DATA" in os.environ:
        source = open_dataset("cifar10", Opening(Path("cifar-10-batches-bin"), "test"))
        pixels = np.stack([source[number].image for number in range(512)]).astype(np.float32)
    else:
        pixels = np.random.default_rng(0).integers(0, 256, (64, 32, 32, 3)).astype(np.float32)
    return np.ascontiguousarray(((pixels - 120) / 60).transpose(0, 3, 1, 2))


@pytest.mark.parametrize("name", ["converted", pytest.param("nin_c3_lr", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "target", ["torch", *(pytest.param(name, marks=pytest.mark.slow) for name in TARGETS.names() if name != "torch")]
)
def test_a_target_computes_what_pytorch_does(target: str, name: str, images: np.ndarray, tmp_path: Path) -> None:
    engine_of = TARGETS.get(target).with_images(images[:100])
    model = network(name)
    with torch.no_grad():
        expected = model(torch.from_numpy(images)).numpy()
    reach = float(expected.max() - expected.min())
    top = np.sort(expected, axis=1)
    sure = top[:, -1] - top[:, -2] > 1e-3
    forms: tuple[Form, ...] = FORMS if target == "onnxruntime" else ("tail",)
    for form in forms:
        folder = tmp_path / form
        folder.mkdir()
        graph = build_form(model, dict.fromkeys(composite_layers(model), form), SIZE)
        engine_of.write(graph, SIZE, folder, batch=1)
        run = engine_of.load(folder, threads=1)
        found = np.concatenate([run(images[first : first + 64]) for first in range(0, len(images), 64)])
        tolerance = TOLERANCE.get(target, 1e-4)
        assert np.abs(found - expected).max() <= tolerance * reach
        if tolerance == 1e-4:
            assert (found.argmax(1) == expected.argmax(1))[sure].all()
        assert np.abs(run(images[:3]) - expected[:3]).max() <= tolerance * reach, "another number of images"
