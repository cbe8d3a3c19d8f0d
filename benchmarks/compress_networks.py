"""The trained networks that ``compress.py`` compresses: which they are, and how each is trained here.

5,000 training images are held out of every run, for the choices; the test set is left for ``compress.py`` to read once.

    CRUCIFORM_DATA=DIR python benchmarks/compress_networks.py             train all, into build/compress; can be resumed
    CRUCIFORM_DATA=DIR python benchmarks/compress_networks.py vgg16       one of them
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

import cruciform
from cruciform.cli.shared.run_progress import make_observer
from cruciform.sources.build_network import build_network

ROOT = Path(__file__).parents[1]
RUNS = ROOT / "build" / "compress"
VGG16 = (64, 64, "pool", 128, 128, "pool", 256, 256, 256, "pool", 512, 512, 512, "pool", 512, 512, 512, "pool")
HELD_OUT = "data.holdout=5000"
# The recipe of the peers' CIFAR networks, in the epochs that two cores can train.
SHORT = ("epochs=4", "batch_size=256", "ema=0.98", "optimizer.lr=0.1", HELD_OUT)

TINY = (
    'kind="folder", path="tinyimagenet100", short_side=32, holdout=5000, '
    "mean=[122.5, 114.3, 101.4], std=[70.6, 68.6, 72.0]"
)


class Vgg16(nn.Module):
    """VGG-16 with batch norm and one linear layer, for 32×32 images: 313 million MACs."""

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__()
        self.features = nn.Sequential()
        c = 3
        for d in VGG16:
            if isinstance(d, str):
                self.features.append(nn.MaxPool2d(2))
            else:
                self.features.extend([nn.Conv2d(c, d, 3, padding=1, bias=False), nn.BatchNorm2d(d), nn.ReLU()])
                c = d
        self.head = nn.Linear(c, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.head(self.features(x).flatten(1))
        return logits


def resnet18() -> nn.Module:
    """Build timm's ResNet-18 with a stem for 32×32 images: a 3×3 convolution without a stride, then its pooling."""
    network, _ = build_network("timm:resnet18", {"num_classes": 10})
    network.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    return network


@dataclass(frozen=True)
class Trained:
    """A network that is trained here.

    Attributes:
        recipe: The recipe that is changed.
        changes: What is changed of it.
        build: Builds the network; None: the recipe does.
        seeds: How many networks are trained.
    """

    recipe: str
    changes: Sequence[str]
    build: Callable[[], nn.Module] | None = None
    seeds: int = 1


NETWORKS: dict[str, Trained] = {
    "cifar_fast": Trained("cifar_fast_cifar10", (HELD_OUT,), seeds=3),
    "vgg16": Trained("modern_cifar10", SHORT, Vgg16),
    "resnet18": Trained("modern_cifar10", SHORT, resnet18),
    "tiny": Trained(
        "cifar_fast_cifar10",
        (
            "epochs=5",
            "model.options={num_classes=100}",
            f"data={{{TINY}}}",
        ),
    ),
}


def run_of(name: str, seed: int) -> Path:
    """Return the directory of a run."""
    return RUNS / f"{name}-{seed}"


def trained(name: str, seed: int) -> nn.Module:
    """Train a network, or read the run where it is trained already."""
    network = NETWORKS[name]
    torch.manual_seed(seed)  # for networks that are built here; the recipe seeds its own
    recipe = cruciform.load_recipe(network.recipe, [*network.changes, f"seed={seed}"])
    model = network.build() if network.build else None
    return cruciform.train(recipe, run_of(name, seed), model=model, observers=[make_observer()])


def main() -> None:
    """Train the networks, or one of them."""
    parser = argparse.ArgumentParser(description="Train the networks that compress.py compresses.")
    parser.add_argument("networks", nargs="*", choices=[*NETWORKS, []], help="which; all where none is given")
    chosen = parser.parse_args().networks or list(NETWORKS)
    for name in chosen:
        for seed in range(NETWORKS[name].seeds):
            trained(name, seed)


if __name__ == "__main__":
    main()
