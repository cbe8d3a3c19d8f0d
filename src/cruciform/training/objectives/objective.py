"""Base of training objectives: a loss for each sample, with mixup and auxiliary heads.

An objective is a table with a ``kind`` and a method ``sample_losses``, registered in ``OBJECTIVES``. A recipe then
takes it as ``loss = {kind = "NAME"}``. ``cross_entropy.py`` is an example.
"""

from abc import ABC, abstractmethod
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from cruciform.registry import Registry
from cruciform.training.objectives.mixup import Mixture
from cruciform.training.tables.table import Table


class Objective(Table, ABC):
    """Base of training objectives.

    Attributes:
        mixup: α of the Beta distribution that mixup draws from; 0: no mixup.
        aux_loss_weight: Weight of the losses of auxiliary heads, where a network has them.
    """

    kind: str
    mixup: float = Field(default=0.0, ge=0)
    aux_loss_weight: float = Field(default=0.3, ge=0)

    @abstractmethod
    def sample_losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of each sample.

        Args:
            logits: (samples, classes), float32.
            labels: (samples,), class indices.
        """

    def total_losses(self, output: Any, labels: Tensor, mixture: Mixture | None) -> Tensor:
        """Return the loss of each sample over all heads, with the labels mixed as the images were.

        Args:
            output: Of the network: logits, or a tuple of them, those of auxiliary heads after the main ones.
            labels: Class indices.
            mixture: How the images were mixed; None: they were not.
        """
        heads = output if isinstance(output, tuple) else (output,)
        total = torch.zeros(len(labels), device=labels.device)
        for index, logits in enumerate(heads):
            if logits is None:  # torchvision's networks return None for heads that are switched off
                continue
            weight = self.aux_loss_weight if index else 1.0
            total = total + weight * self._mixed(logits.float(), labels, mixture)
        return total

    def _mixed(self, logits: Tensor, labels: Tensor, mixture: Mixture | None) -> Tensor:
        own = self.sample_losses(logits, labels)
        if mixture is None:
            return own
        partners = labels[mixture.partners.to(labels.device)]
        return torch.lerp(self.sample_losses(logits, partners), own, mixture.weight)


OBJECTIVES: Registry[type[Objective]] = Registry(
    "training objective", package="cruciform.training.objectives", group="cruciform.objectives"
)
"""Objectives by the ``kind`` that recipes give."""
