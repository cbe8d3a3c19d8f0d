"""A converted network in a Lightning module: Lightning trains, cruciform only makes the network.

python examples/in_lightning.py        needs lightning: pip install 'lightning>=2.6.6'
"""

import lightning
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import cruciform


class Classifier(lightning.LightningModule):
    """Any classifier."""

    def __init__(self, network: nn.Module, lr: float = 0.05) -> None:
        super().__init__()
        self.network, self.lr = network, lr

    def training_step(self, batch: tuple[Tensor, Tensor], number: int) -> Tensor:
        """Return the loss of a batch."""
        images, labels = batch
        loss = F.cross_entropy(self.network(images), labels)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Stochastic gradient descent."""
        return torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.9)


def main() -> None:
    """Run the example."""
    lightning.seed_everything(0)
    dense = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                          nn.Linear(32, 10))  # fmt: skip
    network, report = cruciform.convert(dense, "lr", input_size=(3, 32, 32))
    print(report.summary())
    data = TensorDataset(torch.randn(256, 3, 32, 32), torch.randint(0, 10, (256,)))
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    trainer.fit(Classifier(network), DataLoader(data, batch_size=64))
    print(f"loss after two epochs: {trainer.callback_metrics['loss']:.2f}")


if __name__ == "__main__":
    main()
