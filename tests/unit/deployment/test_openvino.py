"""What OpenVINO gets wrong by itself must not reach anybody."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from cruciform.deployment.search.build import Build, EngineSettings, build_engine, noise
from cruciform.deployment.targets.target import TARGETS

pytest.importorskip("openvino")


class SideBySide(nn.Module):
    """A branch for each activation, which is behind a max pooling in it; their outputs one after another."""

    def __init__(self, *activations: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.MaxPool2d(2), activation, nn.Conv2d(16, 4, 1))
            for activation in activations
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([branch(x) for branch in self.branches], dim=1)


@pytest.mark.slow
def test_an_activation_behind_a_max_pooling_stays_behind_it(tmp_path: Path) -> None:
    torch.manual_seed(0)
    activations = (nn.GELU(), nn.SiLU(), nn.Hardswish(), nn.Mish(), nn.ReLU(), nn.ELU())
    model = SideBySide(*activations).eval()
    engine = build_engine(model, Build({}), EngineSettings(TARGETS.get("openvino"), (8, 8, 8)), tmp_path)
    images = 3 * noise(2, (8, 8, 8))
    with torch.no_grad():
        expected = model(torch.from_numpy(images)).numpy()
    astray = np.abs(engine(images) - expected).max((0, 2, 3, 4)) / np.ptp(expected, (0, 2, 3, 4))
    wrong = [type(activations[branch]).__name__ for branch in np.flatnonzero(astray > 1e-4)]
    assert not wrong, "computed before the pooling"


@pytest.mark.slow
@pytest.mark.parametrize("affine", [False, True])
def test_an_instance_norm_stays_one_operation(affine: bool, tmp_path: Path) -> None:
    import openvino

    torch.manual_seed(0)
    norm = nn.InstanceNorm3d(4, affine=affine)
    if affine:
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    model = nn.Sequential(nn.Conv3d(1, 4, 3), norm, nn.Hardswish(), nn.Conv3d(4, 2, 1)).eval()
    engine = build_engine(model, Build({}), EngineSettings(TARGETS.get("openvino"), (1, 8, 8, 8)), tmp_path)
    kinds = {node.get_type_name() for node in openvino.Core().read_model(tmp_path / "model.xml").get_ops()}
    assert "MVN" in kinds
    assert not kinds & {"BatchNormInference", "Reshape"}, "between which volumes change their order in memory"
    volumes = 3 * noise(2, (1, 8, 8, 8))
    with torch.no_grad():
        expected = model(torch.from_numpy(volumes)).numpy()
    assert np.abs(engine(volumes) - expected).max() < 1e-4 * np.ptp(expected)
