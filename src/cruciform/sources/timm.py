"""timm's networks as a source."""

import math
from collections.abc import Mapping
from typing import Any

from torch import nn

from cruciform.sources.network_library import SOURCES, NetworkLibrary, checked_name, import_library


def _timm() -> Any:
    return import_library("timm", "zoo")


def _names() -> list[str]:
    return list(_timm().list_models())


def _build(name: str, options: Mapping[str, Any]) -> nn.Module:
    # Only names of the list: create_model would fetch others from a hub.
    model: nn.Module = _timm().create_model(checked_name(name, _names(), "timm"), pretrained=False, **options)
    return model


def _input_size(name: str, model: nn.Module) -> tuple[int, ...]:
    return tuple(model.pretrained_cfg["input_size"])  # type: ignore[index]


def _preprocessing(model: nn.Module) -> dict[str, Any] | None:
    """Return a resize and a center crop, as timm evaluates, but with bilinear interpolation."""
    config = getattr(model, "pretrained_cfg", None) or {}
    (_, *extents), mean, std = config.get("input_size", ()) or (0,), config.get("mean"), config.get("std")
    if not mean or not std or len(set(extents)) != 1:
        return None
    data = {
        "short_side": math.floor(extents[0] / (config.get("crop_pct") or 1.0)),
        "mean": [255 * value for value in mean],
        "std": [255 * value for value in std],
    }
    return {"eval_transforms": [{"kind": "center-crop", "size": extents[0]}], "data": data}


SOURCES.add("timm", NetworkLibrary(_names, _build, _input_size, _preprocessing))
