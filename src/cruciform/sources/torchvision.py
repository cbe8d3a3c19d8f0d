"""torchvision's networks as a source. Detectors and optical flow are run by their parts; see ``detector_parts``."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from cruciform.sources.network_library import SOURCES, NetworkLibrary, checked_name, import_library

LARGE = {"inception_v3": 299, "quantized_inception_v3": 299, "ssd300_vgg16": 300, "ssdlite320_mobilenet_v3_large": 320}
CLIP = (3, 16, 112, 112)
FLOW = 128  # the least that RAFT takes


def _models() -> Any:
    return import_library("torchvision.models", "zoo")


def _names() -> list[str]:
    return list(_models().list_models())


def _build(name: str, options: Mapping[str, Any]) -> nn.Module:
    models = _models()
    extra: dict[str, Any] = {"weights_backbone": None} if _takes_backbone(name, models) else {}
    if name.endswith(("googlenet", "inception_v3")):
        extra["init_weights"] = False  # True, its default, warns of being slow
    model: nn.Module = models.get_model(checked_name(name, _names(), "torchvision"), weights=None, **extra, **options)
    return detector_parts(model)


def _takes_backbone(name: str, models: Any) -> bool:
    return name in models.list_models(module=models.detection) + models.list_models(module=models.segmentation)


def _input_size(name: str, model: nn.Module) -> tuple[int, ...]:
    if isinstance(model, TwoFrames):
        return (3, FLOW, FLOW)
    if type(model).__module__.startswith("torchvision.models.video"):
        if name.startswith(("mvit", "swin3d")):
            return (3, 16, 224, 224)
        return (3, 14, 224, 224) if name == "s3d" else CLIP
    size = LARGE.get(name, 224)
    return (3, size, size)


def detector_parts(model: nn.Module) -> nn.Module:
    """Return a network that takes one tensor: a detector as its parts, optical flow on twice the same frame."""
    kind = type(model).__module__
    if kind.startswith("torchvision.models.detection"):
        return DetectorParts(model)
    return TwoFrames(model) if kind.startswith("torchvision.models.optical_flow") else model


class TwoFrames(nn.Module):
    """Optical flow between a frame and itself."""

    counted_as = "optical flow with 2 updates, fewer than the default; each further update costs the same again"

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Any:
        """Return the flow."""
        return self.model(x, x, num_flow_updates=2)


class DetectorParts(nn.Module):
    """A detector's trainable parts in sequence, without the search for boxes between them."""

    counted_as = (
        "a detector by its parts: region heads on one region each, without the predictors after them and the search "
        "for regions"
    )

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> list[Any]:
        """Return what backbone, heads and, on regions of their own size, region heads return."""
        model: Any = self.model
        features = model.backbone(x)
        maps = list(features.values()) if isinstance(features, dict) else [features]
        outputs: list[Any] = [maps, model.rpn.head(maps) if hasattr(model, "rpn") else model.head(maps)]
        for name, size in (("box_head", 7), ("mask_head", 14), ("keypoint_head", 14)):
            head = getattr(getattr(model, "roi_heads", None), name, None)
            if head is not None:
                outputs.append(head(maps[0].new_zeros(1, maps[0].shape[1], size, size)))
        return outputs


SOURCES.add("torchvision", NetworkLibrary(_names, _build, _input_size))
