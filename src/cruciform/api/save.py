"""``cruciform.save``: a converted network as a model directory."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from cruciform.conversion.conversion_report import ConversionReport
    from cruciform.networks.open_network import OpenedNetwork
    from cruciform.store.directory import Base


def save(
    model: "nn.Module",
    directory: Path | str,
    report: "ConversionReport",
    *,
    base: "Base | OpenedNetwork | None" = None,
    preprocessing: Mapping[str, Any] | None = None,
    classes: Sequence[str] | None = None,
) -> Path:
    """Write a converted network as a model directory, which is complete or absent.

    Args:
        model: The converted network.
        directory: Where to write it. A model directory of this name is replaced as a whole.
        report: Of its conversion; for a network that was loaded, ``plan_conversion`` makes a new one.
        base: Where the dense network comes from: a ``Base``, or the opened network that was converted, which also has
            the preprocessing and class names. Left out: ``load`` needs the dense network from its caller.
        preprocessing: How images are preprocessed, as recipes write it. Left out: unknown, and ``predict`` does not
            take the directory.
        classes: The names of the outputs, in order. Left out: unknown.
    """
    from cruciform.networks.open_network import OpenedNetwork
    from cruciform.store.directory import save as save_directory

    if isinstance(base, OpenedNetwork):
        preprocessing = base.preprocessing if preprocessing is None else preprocessing
        classes = base.classes if classes is None else classes
        base = base.base
    return save_directory(model, directory, report, base=base, preprocessing=preprocessing, classes=classes)
