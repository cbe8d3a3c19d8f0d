"""All targets. A new one is imported here, which registers it."""

from cruciform.deploy import eager, onnxruntime, openvino  # noqa: F401
from cruciform.deploy.target import TARGETS

__all__ = ["TARGETS"]
