"""A converted network in a PyTorch loop of your own: nothing but nn.Module is needed.

python examples/plain_loop.py        trains on noise; put your own batches in
"""

import torch
import torch.nn.functional as F
from torch import nn

import cruciform

SIZE = (3, 32, 32)


def make_network() -> nn.Module:
    """The network that you were going to train anyway."""
    layers: list[nn.Module] = []
    for c, d in ((3, 32), (32, 64), (64, 64)):
        layers += [nn.Conv2d(c, d, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 4 * 4, 10))


def main() -> None:
    """Run the example."""
    torch.manual_seed(0)
    network, report = cruciform.convert(make_network(), "lr-join", input_size=SIZE)
    print(report.summary())
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    images, labels = torch.randn(64, *SIZE), torch.randint(0, 10, (64,))
    losses = []
    for _ in range(30):
        loss = F.cross_entropy(network(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"loss: {losses[0]:.2f} → {losses[-1]:.2f}")


if __name__ == "__main__":
    main()
