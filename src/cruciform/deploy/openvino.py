"""OpenVINO: its own pair of files, computed in 32 bits or in bfloat16."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.fx import GraphModule

from cruciform.deploy.graph import export, without_warnings
from cruciform.deploy.quiet import without_telemetry
from cruciform.deploy.target import TARGETS, Engine, Target
from cruciform.errors import MissingExtraError

FILE = "model.xml"
TOLERANCE = {"f32": 1e-4, "bf16": 5e-2}


class OpenVino(Target):
    """Intel's engine, on the CPU.

    Args:
        precision: Of the computation, as the engine names it: f32 or bf16. The files are the same.
    """

    packages = ("openvino",)
    extra = "openvino"

    def __init__(self, precision: str) -> None:
        self.precision = precision
        self.tolerance = TOLERANCE[precision]

    def write(self, graph: GraphModule, input_size: tuple[int, ...], folder: Path, *, batch: int) -> None:
        """Converts torch's export."""
        openvino = _import_openvino()
        with without_warnings():
            model = openvino.convert_model(export(graph, input_size, batch=max(2, batch)).run_decompositions({}))
        openvino.save_model(model, folder / FILE, compress_to_fp16=False)

    def load(self, folder: Path, *, threads: int) -> Engine:
        """Compiles the network for this machine, for the shortest time of one request."""
        openvino = _import_openvino()
        settings = {
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": self.precision,
        }
        compiled = openvino.Core().compile_model(folder / FILE, "CPU", settings)
        request = compiled.create_infer_request()

        def run(images: NDArray[Any]) -> NDArray[Any]:
            request.infer([images], share_inputs=True)
            return np.array(request.get_output_tensor(0).data)

        return run


def _import_openvino() -> Any:
    try:
        with without_telemetry():
            import openvino
    except ImportError as error:
        raise MissingExtraError(f"OpenVINO is not installed ({error}): pip install 'cruciform[openvino]'") from error
    return openvino


TARGETS.add("openvino", OpenVino("f32"))
TARGETS.add("openvino-bf16", OpenVino("bf16"))
