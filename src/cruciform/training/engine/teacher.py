"""The teacher of a distilled run, in evaluation mode: it sees the same images as the network that learns."""

import copy

import torch
from torch import Tensor, nn

from cruciform.errors import ShapeError
from cruciform.nn.channels_last import channels_last_
from cruciform.training.engine.logits import main_logits
from cruciform.training.objectives.distillation import distillation_losses
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.tables.distill_table import DistillTable


class Teacher:
    """A trained network that another one learns from. It is never changed.

    Args:
        network: The trained network.
        recipe: Of the run; its ``distill`` has the weight and the temperature.
        device: Where it runs.
    """

    def __init__(self, network: nn.Module, recipe: Recipe, device: torch.device) -> None:
        self._table = recipe.distill or DistillTable()
        self._network = copy.deepcopy(network).to(device).float().eval()  # the caller's own stays as it is
        if recipe.channels_last:
            channels_last_(self._network)

    def add(self, losses: Tensor, logits: Tensor, images: Tensor) -> Tensor:
        """Return the loss of each sample, mixed with what it differs from the teacher.

        Args:
            losses: By the labels.
            logits: Of the network that learns.
            images: Its inputs.
        """
        with torch.no_grad():
            wanted = main_logits(self._network(images))
        if wanted.shape != logits.shape:
            raise ShapeError(
                f"the teacher has {wanted.shape[1]} outputs, the network that learns from it {logits.shape[1]}; both "
                "need the classes of the data"
            )
        return torch.lerp(losses, distillation_losses(logits, wanted, self._table.temperature), self._table.weight)
