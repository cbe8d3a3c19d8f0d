"""ONNX Runtime: one ONNX file, opset pinned, weights inside."""

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
from cruciform.deployment.targets.library_output import without_remarks
from cruciform.deployment.targets.target import TARGETS, Engine, Target
from cruciform.errors import DeployError, MissingExtraError
from cruciform.files import read_bytes

OPSET = 20
FILE = "model.onnx"
VOLUME_AXES = 4  # channels and three more
LARGEST = 2 * 2**30  # bytes that fit one file

Way = Literal["plain", "image by image", "classifier as convolutions", "volumes as maps"]


class OnnxRuntime(Target):
    """Microsoft's engine, on the CPU.

    Args:
        way: How networks are written: as they are; with a loop over images around all but the classifier; with fully
            connected layers as convolutions; with lines through volumes as convolutions of maps.
    """

    name = "onnxruntime"
    packages = ("onnx", "onnxscript", "onnxruntime")
    extra = "onnx"

    def __init__(self, way: Way = "plain") -> None:
        self._way = way

    def ways(self, batch: int, input_size: tuple[int, ...]) -> Mapping[str, Target]:
        """Returns the ways that may pay: a loop over several images, or convolutions of one; maps for volumes."""
        # A convolution of maps of one pixel reads its weights once an image, a fully connected layer once a batch.
        ways: list[Way] = ["image by image" if batch > 1 else "classifier as convolutions"]
        if len(input_size) == VOLUME_AXES:
            ways.append("volumes as maps")
        return {way: OnnxRuntime(way) for way in ways}

    def write(self, graph: GraphModule, input_size: tuple[int, ...], folder: Path, *, batch: int) -> None:
        """Exports by torch's own exporter; the number of images stays free where the network lets it."""
        size = sum(tensor.nbytes for tensor in (*graph.parameters(), *graph.buffers()))
        if size >= LARGEST:
            raise DeployError(f"the weights have {size / 2**30:.1f} GB; an ONNX file is limited to 2 GB")
        if self._way == "image by image":
            import onnx

            trunk, head, length = cut(graph)
            parts = _program(trunk, input_size, batch=1), _program(head, (length,), batch=2) if head else None
            joined = image_by_image(parts[0].model_proto, parts[1].model_proto if parts[1] else None)
            onnx.save(joined, folder / FILE)
            return
        if self._way != "plain":
            with without_warnings():
                graph = copy.deepcopy(graph)
        if self._way == "classifier as convolutions" and not linear_as_convolution_(graph):
            raise DeployError("no linear layer of this network reads 1×1 feature maps")
        if self._way == "volumes as maps" and not volumes_as_maps_(graph, input_size):
            raise DeployError("no 3-D convolution of this network has a kernel along one or two axes only")
        _program(graph, input_size, batch=max(2, batch)).save(str(folder / FILE), external_data=False)

    def load(self, folder: Path, *, threads: int) -> Engine:
        """Opens a session with all of the engine's own optimizations."""
        try:
            import onnxruntime
        except ImportError as error:
            raise MissingExtraError(
                f"ONNX Runtime is not installed ({error}): pip install 'cruciform[onnx]'"
            ) from error
        _refuse_data_outside(folder / FILE)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(str(folder / FILE), options, providers=["CPUExecutionProvider"])
        (name,) = [value.name for value in session.get_inputs()]
        first = session.get_outputs()[0].name

        def run(images: NDArray[Any]) -> NDArray[Any]:
            return np.asarray(session.run([first], {name: images})[0])

        return run


def _refuse_data_outside(path: Path) -> None:
    """Raises where a file has weights in other files: we write none, and such a place may be anywhere."""
    data = read_bytes(path)
    if b"location" not in data:  # the key under which every place outside is named
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
        with without_remarks():  # a network that needs none of them hears of torchvision's operators
            made = torch.onnx.export(program, dynamo=True, opset_version=OPSET, external_data=False, verbose=False)
    except ImportError as error:
        raise MissingExtraError(f"ONNX is not installed ({error}): pip install 'cruciform[onnx]'") from error
    if made is None:
        raise DeployError("torch.onnx.export returned no program")
    return made


TARGETS.add(OnnxRuntime.name, OnnxRuntime())
