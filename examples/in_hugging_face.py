"""A converted network with Hugging Face's hub mixin: saved to a folder (or pushed to the hub), and loaded again.

python examples/in_hugging_face.py        needs huggingface_hub, which timm brings along
"""

import tempfile

import torch
from huggingface_hub import PyTorchModelHubMixin
from torch import Tensor, nn

import cruciform


class SmallNetwork(nn.Module, PyTorchModelHubMixin):
    """Its options are saved as config.json, its weights as safetensors: no pickle anywhere."""

    def __init__(self, width: int = 32, scheme: str = "lr-join") -> None:
        super().__init__()
        dense = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1),
                              nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))  # fmt: skip
        self.network = cruciform.convert(dense, scheme, input_size=(3, 32, 32)).model

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.network(images)
        return logits


def main() -> None:
    """Run the example."""
    network = SmallNetwork(width=48, scheme="lr")
    with tempfile.TemporaryDirectory() as folder:
        network.save_pretrained(folder)
        loaded = SmallNetwork.from_pretrained(folder)
    images = torch.randn(2, 3, 32, 32)
    print("equal outputs after loading:", torch.equal(network(images), loaded(images)))


if __name__ == "__main__":
    main()
