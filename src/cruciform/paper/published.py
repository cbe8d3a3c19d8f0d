"""Numbers of the paper outside its tables: timings of gmp-lr, and the state of the art of its day.

Facts from the author's own data (github.com/yanii/phd-thesis, ``lrdata/``), which asks to be cited: Y. Ioannou,
"Structural Priors in Deep Neural Networks", 2017.
"""

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True)
class PublishedTiming:
    """A filter group of gmp-lr.

    Attributes:
        layer: Its name in the paper's figure.
        macs: Multiply-accumulates of one image.
        cpu_ms: Milliseconds of Caffe's forward pass on a processor.
        gpu_ms: The same on a graphics card.
    """

    layer: str
    macs: int
    cpu_ms: float
    gpu_ms: float


@dataclass(frozen=True)
class Rival:
    """A network of the state of the art.

    Attributes:
        group: ``crop_mirror`` (trained as the paper does) or ``extra_augmentation``.
        network: Its name.
        test_macs: Multiply-accumulates for all views that its accuracy takes.
        params: Its parameters.
        top5: Published accuracy.
    """

    group: str
    network: str
    test_macs: int
    params: int
    top5: float


@cache
def published_timings() -> tuple[PublishedTiming, ...]:
    """Return the timings, in the order of the network."""
    return tuple(
        PublishedTiming(row["layer"], int(row["macs"]), float(row["cpu_ms"]), float(row["gpu_ms"]))
        for row in _rows("timings.csv")
    )


@cache
def rivals() -> tuple[Rival, ...]:
    """Return the state of the art, in the paper's order."""
    return tuple(
        Rival(row["group"], row["network"], int(row["test_macs"]), int(row["params"]), float(row["top5"]))
        for row in _rows("bigpicture.csv")
    )


def _rows(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader((files(__package__) / name).read_text("utf-8").splitlines()))
