"""All targets. A new one is imported here, which registers it."""

from cruciform.deployment.targets import (
    aotinductor,  # noqa: F401
    eager,  # noqa: F401
    executorch,  # noqa: F401
    onnxruntime,  # noqa: F401
    openvino,  # noqa: F401
    openvino_int8,  # noqa: F401
    torch_int8,  # noqa: F401
)
from cruciform.deployment.targets.target import TARGETS

__all__ = ["TARGETS"]
