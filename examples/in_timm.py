"""Networks of cruciform in timm's registry: timm.create_model, and whatever is built on it, finds them.

python examples/in_timm.py        needs timm: pip install 'cruciform[zoo]'
"""

from typing import Any

import timm
import torch
from timm.models import register_model
from torch import nn

import cruciform

MODELS = ("nin_c3_lr", "vgg11_gmp_lr")


def register(name: str) -> None:
    """Makes a network of the zoo known to timm under the same name."""

    def build(*, pretrained: bool = False, num_classes: int = 1000, **options: Any) -> nn.Module:
        if pretrained:
            raise ValueError(f"{name} has no trained weights; leave out pretrained=True")
        for ignored in ("pretrained_cfg", "pretrained_cfg_overlay", "cache_dir"):  # what timm hands to every model
            options.pop(ignored, None)
        return cruciform.create_model(name, num_classes=num_classes, **options)

    build.__name__ = name
    build.__module__ = __name__  # timm lists what a module registers in its __all__
    register_model(build)


__all__: list[str] = []
for model in MODELS:
    register(model)


def main() -> None:
    """Run the example."""
    print("timm knows:", ", ".join(timm.list_models("*_lr")))
    network = timm.create_model("nin_c3_lr", num_classes=10)
    print(network(torch.randn(2, 3, 32, 32)).shape, f"{cruciform.profile(network, (3, 32, 32)).macs:,} MACs")


if __name__ == "__main__":
    main()
