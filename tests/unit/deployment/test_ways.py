"""Other ways to write a network: fully connected layers as convolutions, a loop over images, volumes as maps."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

from cruciform import convert, create_model
from cruciform.deployment.parity.compare import check_inputs, compare
from cruciform.deployment.rewrites.capture import capture
from cruciform.deployment.rewrites.cut import cut
from cruciform.deployment.rewrites.graph import aten
from cruciform.deployment.rewrites.linear import linear_as_convolution_
from cruciform.deployment.rewrites.maps import FEWEST, volumes_as_maps_
from cruciform.deployment.search.build import PLAIN, Build, EngineSettings, build_engine
from cruciform.deployment.search.layer_forms import FORMS, composite_layers
from cruciform.deployment.targets.onnxruntime import OnnxRuntime, Way
from cruciform.deployment.targets.target import TARGETS, Engine
from cruciform.errors import DeployError

SIZE = (3, 16, 16)


def error_of(model: nn.Module, engine: Engine, size: tuple[int, ...], batch: int) -> float:
    """The largest error at 1, at a batch size, and at one more."""
    target = TARGETS.get("onnxruntime")
    return compare(model.eval(), engine, check_inputs(8, size), batch=batch, target=target, name="onnxruntime").error


class Classifier(nn.Module):
    """Global maximum, two fully connected layers; the first of their results is read twice."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3)
        self.first, self.second = nn.Linear(8, 6), nn.Linear(6, 6, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.adaptive_max_pool2d(0.5 * torch.relu(self.convolution(x)), 1).flatten(1)
        x = torch.relu(self.first(x))
        return x + self.second(x)


def test_fully_connected_layers_become_convolutions_and_compute_the_same() -> None:
    model = Classifier().eval()
    graph = capture(model, SIZE)
    assert linear_as_convolution_(graph)
    targets = [node.target for node in graph.graph.nodes]
    assert aten.linear.default not in targets
    assert targets.count(aten.conv2d.default) == 3
    images = torch.randn(3, *SIZE)
    with torch.no_grad():
        assert torch.allclose(graph(images), model(images), atol=1e-6)


def test_a_layer_that_reads_larger_maps_stays_as_it_is() -> None:
    graph = capture(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 14 * 14, 2)), SIZE)
    assert not linear_as_convolution_(graph)


def test_a_network_is_cut_where_an_image_has_become_a_vector() -> None:
    model = Classifier().eval()
    trunk, head, length = cut(capture(model, SIZE))
    assert length == 8
    assert head is not None
    assert not [node for node in trunk.graph.nodes if node.target is aten.linear.default]
    images = torch.randn(3, *SIZE)
    with torch.no_grad():
        assert torch.allclose(head(trunk(images)), model(images), atol=1e-6)


def test_a_network_of_maps_is_left_whole() -> None:
    graph = capture(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), SIZE)
    assert cut(graph) == (graph, None, 0)


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 4])
def test_every_way_of_onnx_runtime_computes_the_same_for_any_number_of_images(batch: int, tmp_path: Path) -> None:
    setting = EngineSettings(TARGETS.get("onnxruntime"), SIZE, batch)
    other = "classifier as convolutions" if batch == 1 else "image by image"
    assert set(setting.ways()) == {PLAIN, other, "scales as convolutions"}
    model = Classifier().eval()
    for way in setting.ways():
        (tmp_path / way).mkdir()
        engine = build_engine(model, Build({}, way), setting, tmp_path / way)
        assert error_of(model, engine, SIZE, 3) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("way", ["plain", "image by image", "classifier as convolutions", "scales as convolutions"])
def test_a_graph_is_the_same_after_it_was_written(way: Way, tmp_path: Path) -> None:
    graph = capture(Classifier().eval(), SIZE)
    before = str(graph.graph)
    OnnxRuntime(way).write(graph, SIZE, tmp_path, batch=4)
    assert str(graph.graph) == before


@pytest.mark.slow
def test_maps_of_several_images_go_through_a_loop_too(tmp_path: Path) -> None:
    setting = EngineSettings(TARGETS.get("onnxruntime"), SIZE, 4)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3)).eval()
    engine = build_engine(model, Build({}, "image by image"), setting, tmp_path)
    assert error_of(model, engine, SIZE, 4) < 1e-5


VOLUME = (FEWEST, 6, 5, 7)


@pytest.mark.parametrize(
    ("layer", "behind"),
    [
        (nn.Conv3d(FEWEST, 4, (3, 1, 1), padding=(1, 0, 0), stride=(2, 1, 1)), nn.MaxPool3d(2)),
        (nn.Conv3d(FEWEST, 4, (1, 3, 1), padding=(0, 1, 0), bias=False), nn.Identity()),
        (nn.Conv3d(FEWEST, 4, (1, 3, 1), padding=(0, 2, 0), dilation=(1, 2, 1)), nn.ReLU()),
        (nn.Conv3d(FEWEST, 4, (3, 2, 1), padding=(2, 0, 0)), nn.LeakyReLU(0.3)),
        (nn.Conv3d(2 * FEWEST, 4, (1, 1, 3), padding=(0, 0, 1), stride=(1, 1, 2), groups=2), nn.ReLU()),
    ],
    ids=str,
)
def test_lines_and_planes_through_volumes_become_convolutions_of_maps(layer: nn.Conv3d, behind: nn.Module) -> None:
    size = (layer.in_channels, *VOLUME[1:])
    model = nn.Sequential(layer, behind).eval()
    graph = capture(model, size)
    assert volumes_as_maps_(graph, size)
    assert aten.conv3d.default not in [node.target for node in graph.graph.nodes]
    volumes = torch.randn(3, *size)
    with torch.no_grad():
        assert torch.allclose(graph(volumes), model(volumes), atol=1e-6)


def test_other_convolutions_of_volumes_stay_as_they_are() -> None:
    c = FEWEST
    layers = [
        nn.Conv3d(c, c, 3, padding=1),
        nn.Conv3d(c, c, 1),
        nn.Conv3d(c, c, (1, 3, 3), padding=1),
        nn.Conv3d(c, c, (3, 1, 1), padding=1),
        nn.Conv3d(c, c, (1, 1, 3), padding=1),
        nn.Conv3d(c, c - 1, (3, 1, 1), stride=2),
        nn.Conv3d(c - 1, c, (3, 1, 1)),
    ]
    assert not volumes_as_maps_(capture(nn.Sequential(*layers), VOLUME), VOLUME)


@pytest.mark.slow
def test_a_converted_network_of_volumes_is_the_same_as_maps(tmp_path: Path) -> None:
    wide = [nn.Conv3d(1, 3 * FEWEST, 3, padding=1), nn.BatchNorm3d(3 * FEWEST), nn.ReLU(),
            nn.Conv3d(3 * FEWEST, 8, 3, padding=1), nn.ReLU(), nn.MaxPool3d(2)]  # fmt: skip
    size = (1, 8, 6, 8)
    model = convert(nn.Sequential(*wide), "cross3", input_size=size).model.eval()
    setting = EngineSettings(TARGETS.get("onnxruntime"), size)
    for form in set(FORMS) - {"dense"}:
        build = Build(dict.fromkeys(composite_layers(model), form), "volumes as maps")
        (tmp_path / form).mkdir()
        engine = build_engine(model, build, setting, tmp_path / form)
        assert error_of(model, engine, size, 2) < 1e-5


@pytest.mark.parametrize(("conv", "size", "planned"), [(nn.Conv2d, SIZE, True), (nn.Conv3d, (3, 6, 6, 6), False)])
def test_memory_of_a_whole_run_is_planned_for_images_only(
    conv: type[nn.Module], size: tuple[int, ...], planned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = []

    class Noted(onnxruntime.InferenceSession):
        def __init__(self, *given: Any, **more: Any) -> None:
            super().__init__(*given, **more)
            sessions.append(self)

    monkeypatch.setattr(onnxruntime, "InferenceSession", Noted)
    setting = EngineSettings(TARGETS.get("onnxruntime"), size)
    engine = build_engine(conv(3, 4, 3), Build({}), setting, tmp_path)
    assert engine(np.zeros((1, *size), np.float32)).shape[1] == 4
    assert sessions[-1].get_session_options().enable_mem_pattern is planned


@pytest.mark.slow
def test_a_way_that_does_not_apply_says_so(tmp_path: Path) -> None:
    setting = EngineSettings(TARGETS.get("onnxruntime"), SIZE)
    with pytest.raises(DeployError, match="no linear layer of this network reads 1×1 feature maps"):
        build_engine(nn.Conv2d(3, 4, 3), Build({}, "classifier as convolutions"), setting, tmp_path)
    with pytest.raises(DeployError, match="no 3-D convolution of this network has a kernel along one or two axes"):
        build_engine(
            nn.Conv3d(3, 4, 3), Build({}, "volumes as maps"), replace(setting, input_size=(3, 6, 6, 6)), tmp_path
        )


@pytest.mark.slow
def test_a_network_with_no_layers_of_basis_filters_is_its_own_dense_one() -> None:
    from cruciform.deployment.artifact import verdict
    from cruciform.deployment.search.choose import choose_build

    model = create_model("nin", num_classes=4, input_size=32).eval()
    choice = choose_build(model, EngineSettings(TARGETS.get("torch"), (3, 32, 32), rounds=2))
    assert choice.dense is choice.timing
    assert verdict(choice) == "this network has no low-rank layers"
    assert np.isfinite(choice.timing.best)
