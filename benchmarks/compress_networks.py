"""The trained networks that ``compress.py`` compresses: which they are, and how each is trained here.

5,000 training images are held out of every run, for the choices; the test set is left for ``compress.py`` to read once.

    CRUCIFORM_DATA=DIR python benchmarks/compress_networks.py             train all, in the cache folder; can be resumed
    CRUCIFORM_DATA=DIR python benchmarks/compress_networks.py vgg16       one of them
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from finished_rows import kept_folder
from torch import Tensor, nn

import cruciform
from cruciform.cli.shared.run_progress import make_observer
from cruciform.sources.build_network import build_network

ROOT = Path(__file__).parents[1]
RUNS = kept_folder("compress")
VGG16 = (64, 64, "pool", 128, 128, "pool", 256, 256, 256, "pool", 512, 512, 512, "pool", 512, 512, 512, "pool")
HELD_OUT = "data.holdout=5000"
# The recipe of the peers' CIFAR networks, in the epochs that two cores can train.
SHORT = ("epochs=5", "ema=0.99", "optimizer.lr=0.1", HELD_OUT)

TINY = (
    'kind="folder", path="tinyimagenet100", short_side=32, holdout=5000, '
    "mean=[122.5, 114.3, 101.4], std=[70.6, 68.6, 72.0]"
)
VOLUMES = (
    "model.options={widen_factor=0.5, conv1_t_size=3, conv1_t_stride=2, no_max_pool=true}",
    "data.path=adrenalmnist3d.npz",
    "optimizer.lr=3e-3",
    "epochs=12",
    "evaluation={auc=true, batch_size=32, epochs=12}",
)
"""The trained 3-D ResNet-18 of volumes_training.py."""


class Vgg16(nn.Module):
    """VGG-16 with batch norm and one linear layer, for 32×32 images: 313 million MACs at full width."""

    def __init__(self, num_classes: int = 10, width: float = 1.0) -> None:
        super().__init__()
        self.features = nn.Sequential()
        c = 3
        for item in VGG16:
            if isinstance(item, str):
                self.features.append(nn.MaxPool2d(2))
            else:
                d = round(width * item)
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
    "vgg16": Trained("modern_cifar10", (*SHORT, "epochs=4"), Vgg16),
    "resnet18": Trained("modern_cifar10", (*SHORT, "epochs=6"), resnet18),
    "tiny": Trained(
        "cifar_fast_cifar10",
        (
            "epochs=5",
            "model.options={num_classes=100}",
            f"data={{{TINY}}}",
        ),
    ),
    "volumes": Trained("modern_volumes", VOLUMES, seeds=3),
    "cifar_fast_narrow": Trained("cifar_fast_cifar10", ("epochs=4", "model.options={widths=[44, 176, 176]}", HELD_OUT)),
    "vgg16_narrow": Trained("modern_cifar10", SHORT, partial(Vgg16, width=0.25)),
}

PREDICTED = ("cifar_fast_narrow", "vgg16_narrow")
"""Those that predicted and real losses of many random choices are compared on: quickly trained and compressed."""
OF_IMAGES = [name for name in NETWORKS if name not in {"volumes", *PREDICTED}]


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
