"""What holds for every target."""

import pytest

from cruciform.deployment.targets.registered import TARGETS


@pytest.mark.parametrize("name", TARGETS.names())
def test_a_target_says_what_it_needs(name: str) -> None:
    target = TARGETS.get(name)
    assert target.packages
    assert target.extra in ("onnx", "openvino", "executorch", "train", "int8")
    assert target.__doc__


def test_targets_whose_artifacts_could_do_harm_say_so() -> None:
    assert {name for name, target in TARGETS.items() if target.danger} == {
        "torch", "torch-compile", "aotinductor", "torch-int8", "executorch",
    }  # fmt: skip
