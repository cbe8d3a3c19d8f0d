"""What holds for every target."""

import pytest

from cruciform.deployment.targets.registered import TARGETS


@pytest.mark.parametrize("name", TARGETS.names())
def test_a_target_says_what_it_needs(name: str) -> None:
    target = TARGETS.get(name)
    assert target.packages
    assert target.extra in ("onnx", "openvino", "executorch", "train", "int8")
    assert target.__doc__
