"""timm's networks as a source."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from cruciform.sources.source import SOURCES, Source, checked_name, import_library


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


SOURCES.add("timm", Source(_names, _build, _input_size))
