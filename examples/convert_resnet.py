"""Convert a ResNet-18, see what it costs before and after, save it, load it, and get the same outputs.

python examples/convert_resnet.py        needs timm or torchvision: pip install 'cruciform[zoo]'
"""

import importlib.util
import tempfile
from pathlib import Path

import torch

import cruciform
from cruciform.sources.build_network import build_network
from cruciform.store.directory import Base

SIZE = (3, 224, 224)


def main() -> None:
    """Run the example."""
    library = "timm" if importlib.util.find_spec("timm") else "torchvision"
    reference = f"{library}:resnet18"
    network = build_network(reference, {"num_classes": 10}).model

    converted, report = cruciform.convert(network, "lr-join", input_size=SIZE)
    print(report.summary())

    before, after = cruciform.profile(network, SIZE), cruciform.profile(converted, SIZE)
    print(f"counted again: {before.macs:,} → {after.macs:,} MACs, {before.params:,} → {after.params:,} parameters")
    print("can it be trained?", cruciform.diagnose(converted, (3, 64, 64)).verdict)

    with tempfile.TemporaryDirectory() as folder:
        base = Base(reference, {"num_classes": 10})
        directory = cruciform.save(converted, Path(folder) / "resnet18-lr-join", report, base=base)
        print("written:", ", ".join(sorted(path.name for path in directory.iterdir())))
        loaded = cruciform.load(directory)

    images = torch.randn(2, *SIZE)
    with torch.inference_mode():
        equal = torch.equal(converted.eval()(images), loaded.eval()(images))
    print("equal outputs after loading:", equal)


if __name__ == "__main__":
    main()
