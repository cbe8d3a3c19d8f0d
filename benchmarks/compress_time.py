"""How long ``compress`` takes for a ResNet-50 at 224 px and 1,000 images, with the times of its layers in the cache.

The network is timm's, untrained: how long it takes does not depend on weights. Photographs are Imagenette's, enlarged.

    CRUCIFORM_DATA=DIR python benchmarks/compress_time.py        nothing is resumed; ``compress.py`` records the row
"""

import os
import sys
import time
from pathlib import Path

import torch
from compress import PARTS, say
from compress_networks import ROOT

from cruciform.budgets.units.cost_unit import read_limits
from cruciform.compression.compress import CompressionOptions, Compressor
from cruciform.data.transforms.whitening import cache_folder
from cruciform.deployment.search.build import EngineSettings
from cruciform.deployment.targets.target import TARGETS
from cruciform.sources.build_network import build_network

sys.path.insert(0, str(ROOT / "examples" / "real_esrgan"))
from pictures import find_photographs, read_crops

NETWORK, IMAGES = "timm:resnet50", 1000
BUDGET = 70  # its 3×3 layers alone can be rebuilt: all of them at their cheapest leave 61 %
CROP, SIZE = 112, (3, 224, 224)


def main() -> None:
    model, _ = build_network(NETWORK, {})
    crops = read_crops(find_photographs(Path(os.environ["CRUCIFORM_DATA"]) / "imagenette128" / "train"), IMAGES, CROP)
    images = torch.nn.functional.interpolate(crops, SIZE[1:], mode="bilinear") * 4 - 2
    setting, costs = EngineSettings(TARGETS.get("onnxruntime"), SIZE), cache_folder() / "costs"
    limits = read_limits({"time": f"{BUDGET}%"})
    options = CompressionOptions(on_progress=say)
    say("layers are timed first, into the cache, by a compression of two images")
    Compressor(model.eval(), images[:2], setting, costs, options).compress(limits)
    say("measured from here")
    started = time.monotonic()
    compressor = Compressor(model, images, setting, costs, options)
    prepared = time.monotonic() - started
    found = compressor.compress(limits)
    row = {
        "seconds": time.monotonic() - started,
        "prepare_seconds": prepared,
        "threads": torch.get_num_threads(),
        "images": IMAGES,
        "share": found.seconds / found.dense_seconds,
        "layers": len(found.fit.layers),
    }
    say(str(row))
    PARTS["times"].write("resnet50", row)


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
