"""A fixed convolution that is timed in every run, so that times of different runs can be compared.

The speed of a machine changes by tens of per cent within minutes. Times of one run are interleaved and compare well;
times of two runs are put on one scale by what the same convolution took in each.
"""

from pathlib import Path

from torch import nn

from cruciform.deployment.search.build import Build, EngineSettings, build_engine, noise
from cruciform.deployment.targets.target import Engine

INPUT_SIZE = (64, 28, 28)
YARDSTICK = "yardstick"


def build_yardstick(setting: EngineSettings, folder: Path) -> Engine:
    """Return an engine that runs the convolution on images of its own, whatever it is given."""
    network = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1)).eval()
    engine = build_engine(network, Build({}), setting.for_times(input_size=INPUT_SIZE, batch=1), folder)
    images = noise(1, INPUT_SIZE)
    return lambda given: engine(images)
