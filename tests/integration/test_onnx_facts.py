"""What the exported graphs of the VGG networks must look like for the saving to become time."""

from collections import defaultdict
from math import prod
from pathlib import Path

import onnx
import onnxruntime
import pytest
from onnx import shape_inference

from cruciform import create_model
from cruciform.deployment.search.layer_forms import Form, build_form, composite_layers
from cruciform.deployment.targets.onnxruntime import ONNX_FILE
from cruciform.deployment.targets.target import TARGETS
from cruciform.measure.macs import profile

SIZE = (3, 48, 48)
NETWORKS = ["vgg11_gmp_lr", "vgg11_gmp_lr_join", "vgg11_gmp_lr_join_wfull"]


def exported(name: str, form: Form, folder: Path) -> onnx.ModelProto:
    model = create_model(name, num_classes=10, input_size=SIZE[1]).eval()
    graph = build_form(model, dict.fromkeys(composite_layers(model), form), SIZE)
    TARGETS.get("onnxruntime").write(graph, SIZE, folder, batch=1)
    return onnx.load(folder / ONNX_FILE)


def multiply_accumulates(model: onnx.ModelProto) -> int:
    """Counts by ONNX's own shapes, for one image: nothing of our meter is in it."""
    graph = shape_inference.infer_shapes(model).graph
    shapes = {
        value.name: [size.dim_value for size in value.type.tensor_type.shape.dim]
        for value in (*graph.value_info, *graph.output, *graph.input)
    }
    weights = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    total = 0
    for node in graph.node:
        if node.op_type == "Conv":
            total += prod(shapes[node.output[0]][1:]) * prod(weights[node.input[1]][1:])
        elif node.op_type in ("Gemm", "MatMul"):
            total += prod(weights[node.input[1]])
    return total


@pytest.mark.slow
@pytest.mark.parametrize("form", ["tail", "split"])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_graph_has_no_activation_behind_a_concatenation_and_the_planned_macs(
    name: str, form: Form, tmp_path: Path
) -> None:
    model = exported(name, form, tmp_path)
    makers = {output: node.op_type for node in model.graph.node for output in node.output}
    readers = defaultdict(list)
    for node in model.graph.node:
        for source in node.input:
            readers[makers.get(source)].append(node.op_type)
    assert "Relu" not in readers["Concat"]
    assert "MaxPool" not in readers["Concat"]
    assert [opset.version for opset in model.opset_import if not opset.domain] == [20]
    assert multiply_accumulates(model) == profile(create_model(name, num_classes=10, input_size=48), SIZE).macs


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_onnx_runtime_fuses_every_activation(name: str, tmp_path: Path) -> None:
    exported(name, "split", tmp_path)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(str(tmp_path / ONNX_FILE), options, providers=["CPUExecutionProvider"])
    optimized = onnx.load(tmp_path / "optimized.onnx")
    kinds = {node.op_type for node in optimized.graph.node}
    assert "Relu" not in kinds, "each is part of a convolution or of a fully connected layer"
    assert "Add" not in kinds, "so is each sum"
