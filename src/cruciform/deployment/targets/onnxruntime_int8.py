"""ONNX Runtime in int8: one ONNX file, quantized after training by ONNX Runtime's own tools."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.fx import GraphModule

from cruciform.deployment.targets.int8_target import Int8Target, needs_reduced_range
from cruciform.deployment.targets.library_output import without_remarks, without_telemetry
from cruciform.deployment.targets.onnxruntime import ONNX_FILE, OnnxRuntime
from cruciform.deployment.targets.target import TARGETS, Engine
from cruciform.errors import MissingExtraError

F32 = OnnxRuntime()
"""Writes the network before quantization and runs it afterwards; operations without an int8 kernel stay in float32."""


class OnnxRuntimeInt8(Int8Target):
    """Microsoft's engine, on the CPU, with int8 weights and activations."""

    name = "onnxruntime-int8"
    packages = ("onnx", "onnxscript", "onnxruntime")
    extra = "onnx"

    def write(self, graph: GraphModule, input_size: tuple[int, ...], folder: Path, *, batch: int) -> None:
        """Quantize the float32 network: min–max ranges of activations, and of each filter's weights.

        Raises:
            DeployError: There are no images.
        """
        images = self.calibration_images(input_size)
        try:
            with without_telemetry():
                from onnxruntime import quantization
        except ImportError as error:
            raise MissingExtraError(
                f"{self.name} needs ONNX Runtime ({error}): pip install 'cruciform[onnx]'"
            ) from error
        with tempfile.TemporaryDirectory() as plain, without_remarks():
            F32.write(graph, input_size, Path(plain), batch=batch)
            quantization.quantize_static(
                Path(plain) / ONNX_FILE,
                folder / ONNX_FILE,
                _reader(quantization.CalibrationDataReader, images, Path(plain) / ONNX_FILE),
                per_channel=True,
                reduce_range=needs_reduced_range(),
                activation_type=quantization.QuantType.QUInt8,
                weight_type=quantization.QuantType.QInt8,
                # Class scores beyond those of the calibration images must not be clipped.
                extra_options={"OpTypesToExcludeOutputQuantization": ["Gemm", "MatMul"]},
            )

    def load(self, folder: Path, *, threads: int) -> Engine:
        """Open a session with all graph optimizations."""
        return F32.load(folder, threads=threads)


def _reader(base: type, images: NDArray[np.float32], path: Path) -> Any:
    """Return what ONNX Runtime reads calibration images from, one at a time."""
    import onnx

    name = onnx.load(path, load_external_data=False).graph.input[0].name

    class Reader(base):  # type: ignore[misc]  # imported only here
        def __init__(self) -> None:
            self._left = iter(images)

        def get_next(self) -> dict[str, NDArray[np.float32]] | None:
            image = next(self._left, None)
            return None if image is None else {name: image[None]}

    return Reader()


TARGETS.add(OnnxRuntimeInt8.name, OnnxRuntimeInt8())
