"""OpenVINO in int8: its own pair of files, quantized after training by NNCF."""

import io
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from torch.fx import GraphModule

from cruciform.deployment.targets.int8_target import Int8Target
from cruciform.deployment.targets.library_output import without_remarks, without_telemetry
from cruciform.deployment.targets.openvino import OPENVINO_FILE, OpenVino
from cruciform.deployment.targets.target import TARGETS, Engine
from cruciform.errors import MissingExtraError

F32 = OpenVino("f32")
"""Writes the network before quantization and runs it afterwards; layers that NNCF skips stay in float32."""


class OpenVinoInt8(Int8Target):
    """Intel's engine, on the CPU, with int8 weights and activations."""

    name = "openvino-int8"
    packages = ("openvino", "nncf")
    extra = "int8"

    def write(self, graph: GraphModule, input_size: tuple[int, ...], folder: Path, *, batch: int) -> None:
        """Quantize the float32 network.

        Raises:
            DeployError: There are no images.
        """
        images = self.calibration_images(input_size)
        openvino, nncf = _import_both()
        # Read from another folder than it is written to: the engine memory-maps the weights.
        with tempfile.TemporaryDirectory() as plain, without_remarks(), redirect_stdout(io.StringIO()):  # NNCF's bars
            F32.write(graph, input_size, Path(plain), batch=batch)
            model = openvino.Core().read_model(Path(plain) / OPENVINO_FILE)
            model.reshape([-1, *input_size])  # the converter makes all sizes dynamic, not only the batch size
            _simplify_pooling_(openvino, model)
            made = nncf.quantize(
                model,
                nncf.Dataset([image[None] for image in images]),
                subset_size=len(images),
                # By default ranges are averaged over images and clip outliers: an error of 0.30 of the output's
                # range at worst on whitened CIFAR-10, against 0.02 with the min–max range.
                advanced_parameters=nncf.AdvancedQuantizationParameters(
                    activations_range_estimator_params=nncf.quantization.range_estimator.RangeEstimatorParametersSet.MINMAX
                ),
            )
            openvino.save_model(made, folder / OPENVINO_FILE, compress_to_fp16=False)

    def load(self, folder: Path, *, threads: int) -> Engine:
        """Compile the network for this machine, for the shortest time of one request."""
        with without_telemetry():
            return F32.load(folder, threads=threads)


def _simplify_pooling_(openvino: Any, model: Any) -> None:
    """Rewrite max poolings to the oldest opset: after newer ones the engine continues in float32."""
    for node in model.get_ops():
        told = node.get_attributes()
        if node.get_type_name() != "MaxPool" or any(dilation != 1 for dilation in told.get("dilations", ())):
            continue
        rounding = "ceil" if told["rounding_type"].startswith("ceil") else "floor"
        border = told["pads_begin"], told["pads_end"]
        plain = openvino.opset1.max_pool(node.input_value(0), told["strides"], *border, told["kernel"], rounding)
        # Where torch's ceil mode drops a last window, the sizes differ; that requires static sizes.
        size, plain_size = (list(output.get_partial_shape())[2:] for output in (node.output(0), plain.output(0)))
        same = size == plain_size and all(length.is_static for length in size)
        if same and not any(output.get_target_inputs() for output in node.outputs()[1:]):
            plain.set_friendly_name(node.get_friendly_name())
            node.output(0).replace(plain.output(0))


def _import_both() -> tuple[Any, Any]:
    try:
        with without_telemetry(), without_remarks():
            import nncf
            import nncf.quantization.range_estimator
            import openvino
    except ImportError as error:
        raise MissingExtraError(
            f"{OpenVinoInt8.name} needs OpenVINO and NNCF ({error}): pip install 'cruciform[openvino,int8]'"
        ) from error
    return openvino, nncf


TARGETS.add(OpenVinoInt8.name, OpenVinoInt8())
