"""ONNX Runtime: one ONNX file, opset pinned, weights inside."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.fx import GraphModule

from cruciform.deploy.graph import export, without_warnings
from cruciform.deploy.target import TARGETS, Engine, Target
from cruciform.errors import DeployError, MissingExtraError

OPSET = 20
FILE = "model.onnx"
LARGEST = 2 * 2**30  # bytes that fit one file


class OnnxRuntime(Target):
    """Microsoft's engine, on the CPU."""

    packages = ("onnx", "onnxscript", "onnxruntime")
    extra = "onnx"

    def write(self, graph: GraphModule, input_size: tuple[int, ...], folder: Path, *, batch: int) -> None:
        """Exports by torch's own exporter; the number of images stays free where the network lets it."""
        size = sum(tensor.nbytes for tensor in (*graph.parameters(), *graph.buffers()))
        if size >= LARGEST:
            raise DeployError(f"the weights have {size / 2**30:.1f} GB; one ONNX file holds less than 2")
        program = export(graph, input_size, batch=max(2, batch))
        try:
            with without_warnings():
                made = torch.onnx.export(program, dynamo=True, opset_version=OPSET, external_data=False, verbose=False)
        except ImportError as error:
            raise MissingExtraError(f"ONNX is not installed ({error}): pip install 'cruciform[onnx]'") from error
        if made is None:
            raise DeployError("torch.onnx gave no program")
        made.save(str(folder / FILE), external_data=False)

    def load(self, folder: Path, *, threads: int) -> Engine:
        """Opens a session with all of the engine's own optimisations."""
        try:
            import onnxruntime
        except ImportError as error:
            raise MissingExtraError(
                f"ONNX Runtime is not installed ({error}): pip install 'cruciform[onnx]'"
            ) from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(str(folder / FILE), options, providers=["CPUExecutionProvider"])
        (name,) = [value.name for value in session.get_inputs()]
        first = session.get_outputs()[0].name

        def run(images: NDArray[Any]) -> NDArray[Any]:
            return np.asarray(session.run([first], {name: images})[0])

        return run


TARGETS.add("onnxruntime", OnnxRuntime())
