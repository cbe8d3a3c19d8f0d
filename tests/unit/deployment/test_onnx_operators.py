"""Exports share the table of operators, and nothing else comes of it."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import nn

from cruciform.deployment.targets import onnx_operators
from cruciform.deployment.targets.library_output import without_remarks
from cruciform.deployment.targets.onnx_operators import kept_operators

registration = pytest.importorskip("torch.onnx._internal.exporter._registration")
pytest.importorskip("onnxscript")


class Doubled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(2 * x)


def exported(context: Any, **more: Any) -> bytes:
    program = torch.export.export(Doubled(), (torch.zeros(2, 3),))
    with without_remarks(), context:
        made = torch.onnx.export(program, dynamo=True, opset_version=20, verbose=False, **more)
    assert made is not None
    return made.model_proto.SerializeToString(deterministic=True)


@pytest.mark.slow
def test_an_export_is_the_same_and_makes_the_table_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_operators, "_tables", {})
    made = []
    read = registration.onnxscript_apis.get_torchlib_ops
    monkeypatch.setattr(registration.onnxscript_apis._module, "get_torchlib_ops", lambda: made.append(1) or read())
    plain = exported(nullcontext())
    assert len(made) == 1
    assert exported(kept_operators()) == exported(kept_operators()) == plain
    assert len(made) == 2


def test_what_one_export_adds_is_not_in_the_next() -> None:
    with kept_operators():
        table = registration.ONNXRegistry.from_torchlib(opset_version=20)
        table.functions["aten::relu"].clear()
        assert registration.ONNXRegistry.from_torchlib(opset_version=20).functions["aten::relu"]


def test_torchs_own_method_is_put_back_after_a_failure_too() -> None:
    own = registration.ONNXRegistry.__dict__["from_torchlib"]
    with pytest.raises(AttributeError), kept_operators():
        registration.ONNXRegistry.from_torchlib.no_such_attribute()
    assert registration.ONNXRegistry.__dict__["from_torchlib"] is own


def test_a_torch_that_makes_its_table_otherwise_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(registration.ONNXRegistry, "from_torchlib")
    with kept_operators():
        assert not hasattr(registration.ONNXRegistry, "from_torchlib")
