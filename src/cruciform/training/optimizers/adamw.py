"""Adam with decoupled weight decay."""

from typing import Any, Literal

import torch
from pydantic import Field

from cruciform.training.optimizers.optimizer_table import OPTIMIZERS, DecayRate, OptimizerTable


@OPTIMIZERS.register("adamw")
class AdamW(OptimizerTable):
    """Adam with decoupled weight decay.

    Attributes:
        betas: As in ``torch.optim.AdamW``.
        eps: As in ``torch.optim.AdamW``.
    """

    kind: Literal["adamw"] = "adamw"
    betas: tuple[DecayRate, DecayRate] = (0.9, 0.999)
    eps: float = Field(default=1e-8, gt=0)

    def make(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        """Return ``torch.optim.AdamW``."""
        return torch.optim.AdamW(groups, betas=self.betas, eps=self.eps, fused=True)
