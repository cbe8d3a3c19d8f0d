"""All targets. A new one is imported here, which registers it."""

from cruciform.deploy import aotinductor, eager, executorch, onnxruntime, openvino, openvino_int8, torch_int8  # noqa: F401
from cruciform.deploy.target import TARGETS

__all__ = ["TARGETS"]
