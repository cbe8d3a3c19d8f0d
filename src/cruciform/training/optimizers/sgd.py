"""Stochastic gradient descent."""

from typing import Any, Literal

import torch
from pydantic import ValidationInfo, field_validator

from cruciform.training.optimizers.optimizer_table import OPTIMIZERS, DecayRate, OptimizerTable


@OPTIMIZERS.register("sgd")
class Sgd(OptimizerTable):
    """Stochastic gradient descent with momentum.

    Attributes:
        momentum: As in ``torch.optim.SGD``.
        nesterov: Whether to use Nesterov momentum.
    """

    kind: Literal["sgd"] = "sgd"
    momentum: DecayRate = 0.9
    nesterov: bool = False

    @field_validator("nesterov")
    @classmethod
    def _has_momentum(cls, value: bool, info: ValidationInfo) -> bool:  # noqa: FBT001
        if value and info.data.get("momentum") == 0:
            raise ValueError("Nesterov needs momentum; set it to false, or optimizer.momentum above 0")
        return value

    def make(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        """Return ``torch.optim.SGD``."""
        return torch.optim.SGD(groups, momentum=self.momentum, nesterov=self.nesterov, fused=True)
