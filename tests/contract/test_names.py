"""The names that are known without libraries are those that the libraries have."""

import json
import subprocess
import sys
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from cruciform.coverage.coverage_run import list_networks
from cruciform.deployment.artifact import REPORT
from cruciform.errors import UnknownNameError
from cruciform.models.zoo import list_models
from cruciform.prediction import request
from cruciform.sources import network_names as names
from cruciform.sources.build_network import SOURCES
from cruciform.store import recognize
from cruciform.store.run_marker import RUN_RECIPE

LISTED = json.loads(names.NAMES_FILE.read_text("utf-8"))


def test_our_own_networks_are_listed_without_torch() -> None:
    assert LISTED["names"]["zoo"] == list_models(), "run: python benchmarks/list_networks.py"
    assert LISTED["families"] == names.families(), "run: python benchmarks/list_networks.py"


def test_every_source_is_listed() -> None:
    assert set(names.list_sources()) == set(SOURCES.names())


@pytest.mark.slow
@pytest.mark.parametrize("source", sorted(LISTED["versions"]))
def test_the_networks_of_a_library_are_listed(source: str) -> None:
    if find_spec(source) is None:
        pytest.skip(f"{source} is not installed")
    if version(source).partition("+")[0] != LISTED["versions"][source]:
        pytest.skip(f"{source} {version(source)} is installed; its list is that of {LISTED['versions'][source]}")
    listed = [f"{source}:{name}" for name in LISTED["names"][source]]
    assert listed == list_networks([source]), "run: python benchmarks/list_networks.py"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("resnt18", "timm:resnet18"),
        ("resnet18", "timm:resnet18"),
        ("vgg11_gpm", "vgg11_gmp"),
        ("unet-3d", "monai:UNet-3d"),
        ("torchvision:resnt50", "torchvision:resnet50"),
    ],
)
def test_a_mistyped_name_is_answered_with_the_nearest(typed: str, meant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "_installed", LISTED["versions"].get)
    with pytest.raises(UnknownNameError) as refused:
        names.check_listed(typed)
    assert f"Did you mean '{meant}'" in str(refused.value)


def test_another_version_of_a_library_may_have_other_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "_installed", lambda library: "99.0")
    names.check_listed("timm:network_of_next_year")
    monkeypatch.setattr(names, "_installed", lambda library: None)
    names.check_listed("timm:network_of_next_year")
    with pytest.raises(UnknownNameError):
        names.check_listed("network_of_next_year")


def test_what_tells_a_directory_has_one_name() -> None:
    """Written twice, for what knows no torch must not import what does."""
    assert recognize.RUN_RECIPE == request.RUN == RUN_RECIPE
    assert recognize.ARTIFACT == request.ARTIFACT == REPORT
    assert recognize.CARD == request.MODEL


WORK = """
import sys
sys.argv = ["cruciform", *sys.argv[1:]]
from cruciform.cli.main import run
try:
    run()
except SystemExit as end:
    heavy = {"torch", "timm", "numpy", "torchvision", "monai", "pyarrow"} & set(sys.modules)
    sys.exit(f"imported {heavy}" if heavy else end.code)
"""


@pytest.mark.parametrize(
    "words",
    ["profile resnt18", "doctor nowhere/at/all", "deploy x.pt -o y", "filters tim:resnet18", "report README -o x.html",
     "convert resnt18", "budget resnt18 --budget 60%", "evaluate nowhere", "predict nowhere images -o x.parquet"],
)  # fmt: skip
def test_a_mistake_is_answered_without_torch(words: str, tmp_path: Path) -> None:
    (tmp_path / "x.pt").write_bytes(b"PK\x03\x04")
    (tmp_path / "README").write_text("hello")
    began = time.monotonic()
    command = [sys.executable, "-c", WORK, *words.split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: ")
    assert time.monotonic() - began < 5  # a third of a second where nothing else runs
