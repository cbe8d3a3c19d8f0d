"""A scheme and a network family are added by one file each, in another package, and work like our own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCHEME = """
from cruciform.plan import FilterGroup, LayerPlan, Stage
from cruciform.spec import ConvSpec

def squeezed(spec: ConvSpec) -> LayerPlan:
    ones = (1,) * spec.rank
    narrow = max(1, spec.out_channels // 4)
    groups = FilterGroup(ones, narrow), FilterGroup(spec.kernel, spec.out_channels)
    return LayerPlan(spec, tuple(Stage((group,), spec.bias) for group in groups))
"""
FAMILY = """
from dataclasses import dataclass
from torch import Tensor, nn
from cruciform.models.network import MODELS, Network, NetworkConfig

class Tiny(Network):
    def __init__(self, config: "TinyConfig") -> None:
        super().__init__(config)
        self.first, self.second = nn.Conv2d(config.in_channels, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, config.num_classes)
    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.second(self.first(x).relu()).relu().mean((2, 3)))

@dataclass(frozen=True, kw_only=True)
class TinyConfig(NetworkConfig):
    num_classes: int = 4
    input_size: int = 16
    def build(self) -> Network:
        return Tiny(self)

MODELS.add("tiny", TinyConfig())
MODELS.add("tiny_100", TinyConfig(num_classes=100))
"""
PYTHON = """
import cruciform
assert {"tiny", "tiny_100", "nin"} <= set(cruciform.list_models())
assert cruciform.profile("tiny").params == cruciform.profile(cruciform.create_model("tiny"), (3, 16, 16)).params
model, report = cruciform.convert("tiny", "squeezed")
assert report.replaced == 2 and report.verified, report
assert str(model.second.plan) == "[1×1: 2] → [3×3: 8]"
assert report.macs_after == cruciform.profile(model, (3, 16, 16)).macs < report.macs_before
cruciform.save(model, "out", report, base=cruciform.open_network("tiny"))
assert cruciform.profile("out").macs == report.macs_after
assert cruciform.diagnose("tiny").depth == 1
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package that pip could have installed: one file with a scheme, one with a family, and their entry points."""
    (tmp_path / "guests_scheme.py").write_text(SCHEME)
    (tmp_path / "guests_family.py").write_text(FAMILY)
    info = tmp_path / "guests-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: guests\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[cruciform.schemes]\nsqueezed = guests_scheme:squeezed\n[cruciform.models]\ntiny = guests_family\n"
    )
    return tmp_path


def run(package: Path, *words: str) -> subprocess.CompletedProcess[str]:
    paths = [str(package), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=package, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_they_are_converted_profiled_and_saved_in_python(package: Path) -> None:
    done = run(package, "-W", "error", "-c", PYTHON)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_they_are_converted_and_profiled_on_the_command_line(package: Path) -> None:
    done = run(package, "-m", "cruciform", "convert", "tiny", "--scheme", "squeezed")
    assert done.returncode == 0, done.stderr
    assert "2 convolutions: 2 replaced" in done.stdout
    assert "tiny_100" in run(package, "-m", "cruciform", "profile", "tiny_100").stdout
    assert "Did you mean 'tiny'" in run(package, "-m", "cruciform", "profile", "tinny").stderr
    wrong = run(package, "-m", "cruciform", "convert", "tiny", "--scheme", "sqeezed").stderr
    assert "unknown scheme 'sqeezed'. Did you mean 'squeezed'?" in wrong
