"""MONAI's 3-D networks: converted, saved, loaded and run in engines, each the same network throughout."""

from pathlib import Path

import numpy as np
import pytest
import torch

from cruciform import convert, load
from cruciform.deployment.search.build import Build, EngineSettings, build_engine, noise
from cruciform.deployment.search.layer_forms import composite_layers
from cruciform.deployment.targets.target import TARGETS
from cruciform.errors import DeployError
from cruciform.sources.build_network import build_network
from cruciform.store.directory import Base, save

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
SIZE = (1, 32, 32, 32)


@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        ("UNet", "planes"),
        *((name, "cross3") for name in ("UNet", "SegResNet", "DynUNet", "VNet")),
        pytest.param("DenseNet121", "cross3", marks=pytest.mark.soak),
    ],
)
def test_a_network_of_volumes_is_the_same_saved_loaded_and_deployed(name: str, scheme: str, tmp_path: Path) -> None:
    pytest.importorskip("monai")
    torch.manual_seed(0)
    reference = f"monai:{name}-3d"
    network, _ = build_network(reference, {})
    conversion = convert(network, scheme, input_size=SIZE)
    assert conversion.report.replaced
    model = conversion.model.eval()
    save(model, tmp_path / "model", conversion.report, base=Base(reference))
    images = noise(2, SIZE)
    with torch.no_grad():
        expected = model(torch.from_numpy(images))
        assert torch.equal(load(tmp_path / "model").eval()(torch.from_numpy(images)), expected)
    for target, form in (("onnxruntime", "tail"), ("openvino", "dense")):
        build = Build(dict.fromkeys(composite_layers(model), form))
        (tmp_path / target).mkdir()
        found = build_engine(model, build, EngineSettings(TARGETS.get(target), SIZE, batch=2), tmp_path / target)(
            images
        )
        assert np.abs(found - expected.numpy()).max() < 1e-4 * np.ptp(expected.numpy())


def test_a_network_that_torch_can_not_compile_is_refused_with_a_reason(tmp_path: Path) -> None:
    """So that a comparison of engines goes on with the others, and says why this one is left out."""
    pytest.importorskip("monai")
    network, _ = build_network("monai:UNet-3d", {})
    setting = EngineSettings(TARGETS.get("torch-compile"), SIZE)
    with pytest.raises(DeployError, match="torch.compile fails on this network .*deploy to another target"):
        build_engine(network, Build({}), setting, tmp_path)
