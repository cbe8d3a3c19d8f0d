"""OpenVINO: its own pair of files, run in float32 or bfloat16."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.export import ExportedProgram, default_decompositions
from torch.fx import GraphModule

from cruciform.deployment.rewrites.graph import INSTANCE_NORM, export, without_warnings
from cruciform.deployment.targets.library_output import without_telemetry
from cruciform.deployment.targets.target import EXACT, TARGETS, Engine, Target
from cruciform.errors import MissingExtraError

OPENVINO_FILE = "model.xml"
TOLERANCE = {"f32": EXACT, "bf16": 5e-2}
RISING = frozenset({"Relu", "Convolution", "MaxPool", "AvgPool", "Concat", "Reshape", "Result"})
"""Operations that may safely follow a max pooling: monotonic activations, and those that are no activation."""


class OpenVino(Target):
    """Intel's engine, on the CPU.

    Args:
        precision: Of the computation, as the engine names it: f32 or bf16. The files are the same.
    """

    packages = ("openvino",)
    extra = "openvino"

    def __init__(self, precision: str) -> None:
        self.name = "openvino" if precision == "f32" else f"openvino-{precision}"
        self.precision = precision
        self.tolerance = TOLERANCE[precision]

    def write(self, graph: GraphModule, input_size: tuple[int, ...], folder: Path, *, batch: int) -> None:
        """Convert the graph of torch.export."""
        openvino = _import_openvino()
        openvino.save_model(convert_model(graph, input_size, batch), folder / OPENVINO_FILE, compress_to_fp16=False)

    def load(self, folder: Path, *, threads: int) -> Engine:
        """Compile the network for this machine, optimized for latency."""
        openvino = _import_openvino()
        settings = {
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": self.precision,
        }
        compiled = openvino.Core().compile_model(folder / OPENVINO_FILE, "CPU", settings)
        request = compiled.create_infer_request()

        def run(images: NDArray[Any]) -> NDArray[Any]:
            request.infer([images], share_inputs=True)
            return np.array(request.get_output_tensor(0).data)

        return run


def convert_model(graph: GraphModule, input_size: tuple[int, ...], batch: int) -> Any:
    """Convert a graph into a model of OpenVINO."""
    openvino = _import_openvino()
    with without_warnings():
        program = export(graph, input_size, batch=max(2, batch)).run_decompositions({})
        model = openvino.convert_model(_with_instance_norms(program) if _has_instance_norms(program) else program)
    _hold_back_activations_(openvino, model)
    return model


def _has_instance_norms(program: ExportedProgram) -> bool:
    return any(node.target is INSTANCE_NORM and node.args[3] is None for node in program.graph.nodes)


def _with_instance_norms(program: ExportedProgram) -> Any:
    """Return a program whose instance norms OpenVINO does not decompose.

    Its reader decomposes them into batch norms over images × channels between two changes of memory format, which is
    half of the time of a small 3-D network (seen with 2026.4). Undecomposed, they become one operation.
    """
    from openvino.frontend.pytorch.fx_decoder import TorchFXPythonDecoder
    from openvino.frontend.pytorch.torchdynamo.export_decompositions import ops_to_not_decompose

    table = default_decompositions()
    for operation in (*ops_to_not_decompose(), INSTANCE_NORM):
        table.pop(operation, None)
    return TorchFXPythonDecoder(program.run_decompositions(table).module(), dynamic_shapes=True)


def _hold_back_activations_(openvino: Any, model: Any) -> None:
    """Keep OpenVINO from moving an activation before the max pooling that it reads.

    On CPUs it fuses the activation after a pooling into the convolution before it, which is correct only for monotonic
    activations: it also does so with GELU, Swish, HSwish, Mish and Abs, with wrong results (seen with 2026.4). A
    maximum with the smallest float in between changes nothing and prevents it.
    """
    for node in model.get_ordered_ops():
        if node.get_type_name() != "MaxPool":
            continue
        readers = list(node.output(0).get_target_inputs())
        if all(reader.get_node().get_type_name() in RISING for reader in readers):
            continue
        least = openvino.opset13.constant(np.float32(np.finfo(np.float32).min))
        held = openvino.opset13.maximum(node.output(0), least)
        for reader in readers:
            reader.replace_source_output(held.output(0))
    model.validate_nodes_and_infer_types()


def _import_openvino() -> Any:
    try:
        with without_telemetry():
            import openvino
    except ImportError as error:
        raise MissingExtraError(f"OpenVINO is not installed ({error}): pip install 'cruciform[openvino]'") from error
    return openvino


for target in map(OpenVino, TOLERANCE):
    TARGETS.add(target.name, target)
