"""What holds for every target."""

import tomllib
from pathlib import Path

import pytest

from cruciform.deployment.targets.target import TARGETS

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = set(PROJECT["optional-dependencies"])


@pytest.mark.parametrize("name", TARGETS.names())
def test_a_target_says_what_it_needs(name: str) -> None:
    target = TARGETS.get(name)
    assert target.packages
    assert target.name == name
    assert target.extra in EXTRAS
    assert target.__doc__


def test_targets_whose_artifacts_could_do_harm_say_so() -> None:
    harmful = {name for name, target in TARGETS.items() if target.danger}
    assert harmful >= {"torch", "torch-compile", "aotinductor", "torch-int8", "executorch"}
    assert not harmful & {"onnxruntime", "openvino", "openvino-bf16"}
