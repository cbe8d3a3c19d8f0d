"""ONNX Runtime: one ONNX file with a pinned opset and embedded weights."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch.fx import GraphModule

from cruciform.deployment.rewrites.cut import cut
from cruciform.deployment.rewrites.graph import export, without_warnings
from cruciform.deployment.rewrites.image_by_image import image_by_image
from cruciform.deployment.rewrites.linear import linear_as_convolution_
from cruciform.deployment.rewrites.maps import volumes_as_maps_
from cruciform.deployment.rewrites.scale import scales_as_convolutions_
from cruciform.deployment.targets.library_output import without_remarks, without_telemetry
from cruciform.deployment.targets.onnx_operators import kept_operators
from cruciform.deployment.targets.target import TARGETS, Engine, Target
from cruciform.errors import DeployError, MissingExtraError
from cruciform.files import read_bytes

OPSET = 20
ONNX_FILE = "model.onnx"
VOLUME_AXES = 4  # channels and three more
LARGEST = 2 * 2**30  # bytes that fit one file

Way = Literal["plain", "image by image", "classifier as convolutions", "scales as convolutions", "volumes as maps"]


class OnnxRuntime(Target):
    """Microsoft's engine, on the CPU.

    Args:
        way: How networks are exported: plain; with a loop over images around all but the classifier; with linear layers
            as convolutions; with multiplications by constants as convolutions; with 3-D convolutions along one or two
            axes as 2-D ones.
    """

    name = "onnxruntime"
    packages = ("onnx", "onnxscript", "onnxruntime")
    extra = "onnx"

    def __init__(self, way: Way = "plain") -> None:
        self._way = way

    def ways(self, batch: int, input_size: tuple[int, ...]) -> Mapping[str, Target]:
        """Return the ways that may be faster than the plain one."""
        # A 1×1 convolution reads its weights once per image, a linear layer once per batch.
        ways: list[Way] = ["image by image" if batch > 1 else "classifier as convolutions", "scales as convolutions"]
        if len(input_size) == VOLUME_AXES:
            ways.append("volumes as maps")
        return {way: OnnxRuntime(way) for way in ways}

    def write(self, graph: GraphModule, input_size: tuple[int, ...], folder: Path, *, batch: int) -> None:
        """Export with torch.onnx; the batch size stays dynamic where the network allows it."""
        size = sum(tensor.nbytes for tensor in (*graph.parameters(), *graph.buffers()))
        if size >= LARGEST:
            raise DeployError(f"the weights have {size / 2**30:.1f} GB; an ONNX file is limited to 2 GB")
        if self._way == "image by image":
            import onnx

            trunk, head, length = cut(graph)
            parts = _program(trunk, input_size, batch=1), _program(head, (length,), batch=2) if head else None
            joined = image_by_image(parts[0].model_proto, parts[1].model_proto if parts[1] else None)
            onnx.save(joined, folder / ONNX_FILE)
            return
        if self._way != "plain":
            with without_warnings():
                graph = copy.deepcopy(graph)
        if self._way == "classifier as convolutions" and not linear_as_convolution_(graph):
            raise DeployError("no linear layer of this network reads 1×1 feature maps")
        if self._way == "scales as convolutions" and not scales_as_convolutions_(graph):
            raise DeployError("no feature maps of this network are multiplied by constants outside its convolutions")
        if self._way == "volumes as maps" and not volumes_as_maps_(graph, input_size):
            raise DeployError("no 3-D convolution of this network has a kernel along one or two axes only")
        _program(graph, input_size, batch=max(2, batch)).save(str(folder / ONNX_FILE), external_data=False)

    def load(self, folder: Path, *, threads: int) -> Engine:
        """Open a session with all graph optimizations."""
        try:
            with without_telemetry():
                import onnxruntime
        except ImportError as error:
            raise MissingExtraError(
                f"ONNX Runtime is not installed ({error}): pip install 'cruciform[onnx]'"
            ) from error
        _refuse_data_outside(folder / ONNX_FILE)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        path, providers = str(folder / ONNX_FILE), ["CPUExecutionProvider"]
        session = onnxruntime.InferenceSession(path, options, providers=providers)
        if len(session.get_inputs()[0].shape) > VOLUME_AXES:
            # Its plan of memory for a whole run comes on top of what the first run took: nearly twice the peak. It
            # saves 1 to 2 % of the time for images, and nothing for volumes.
            options.enable_mem_pattern = False
            session = onnxruntime.InferenceSession(path, options, providers=providers)
        (name,) = [value.name for value in session.get_inputs()]
        first = session.get_outputs()[0].name

        def run(images: NDArray[Any]) -> NDArray[Any]:
            return np.asarray(session.run([first], {name: images})[0])

        return run


def _refuse_data_outside(path: Path) -> None:
    """Raise where an ONNX file refers to external data, which could be any file; we write none."""
    data = read_bytes(path)
    if b"location" not in data:  # the key of every external reference
        return
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load_model_from_string(data)
    except DecodeError as error:
        raise DeployError(f"{path} is not an ONNX file: {error}") from error
    if _has_data_outside(model):
        raise DeployError(f"{path} refers to other files for its weights; artifacts contain all of theirs")


def _has_data_outside(message: Any) -> bool:
    for field, value in message.ListFields():
        if field.name == "external_data":
            return True
        if field.message_type is not None:
            inner = [value] if hasattr(value, "ListFields") else value
            if any(map(_has_data_outside, inner)):
                return True
    return False


def _program(graph: GraphModule, input_size: tuple[int, ...], *, batch: int) -> Any:
    program = export(graph, input_size, batch=batch)
    try:
        # It mentions torchvision's operators to networks without any.
        with without_remarks(), kept_operators():
            made = torch.onnx.export(program, dynamo=True, opset_version=OPSET, external_data=False, verbose=False)
    except ImportError as error:
        raise MissingExtraError(f"ONNX is not installed ({error}): pip install 'cruciform[onnx]'") from error
    if made is None:
        raise DeployError("torch.onnx.export returned no program")
    return made


TARGETS.add(OnnxRuntime.name, OnnxRuntime())
