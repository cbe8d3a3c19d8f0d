"""Cross entropy with label smoothing: the default objective."""

from typing import Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from cruciform.training.objectives.objective import OBJECTIVES, Objective


@OBJECTIVES.register("cross-entropy")
class CrossEntropy(Objective):
    """Cross entropy.

    Attributes:
        label_smoothing: As in ``torch.nn.CrossEntropyLoss``.
    """

    kind: Literal["cross-entropy"] = "cross-entropy"
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)

    def sample_losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the cross entropy of each sample."""
        return F.cross_entropy(logits, labels, reduction="none", label_smoothing=self.label_smoothing)
