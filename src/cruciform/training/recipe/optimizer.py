"""Optimizers, and which parameters decay: biases and the scales of norms are left out where a recipe says so."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, ValidationInfo, field_validator
from torch import nn

from cruciform.training.recipe.patterns import match
from cruciform.training.recipe.table import Table

Kept = Annotated[float, Field(ge=0, lt=1)]
"""A share of what was before that is kept."""


class OptimizerTable(Table, ABC):
    """Base of optimizers.

    Attributes:
        rate: γ₀, the learning rate that the schedule starts from.
        weight_decay: λ.
        decayed: What decays: only what is multiplied by (kernels and matrices), or biases and norms too.
        bias_rate: The rate of biases, as a multiple of that of weights; 2 in Caffe's models.
        rates: Other multiples for parameters whose names match a pattern, as ``{"features.conv1.*" = 0.1}``.
    """

    rate: float = Field(gt=0)
    weight_decay: float = Field(default=0.0, ge=0)
    decayed: Literal["weights", "all"] = "weights"
    bias_rate: float = Field(default=1.0, gt=0)
    rates: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)

    @abstractmethod
    def over(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        """Returns torch's optimizer of these groups of parameters."""

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """Returns the optimizer of a network's parameters; each group knows its share of the rate."""
        return self.over(list(self._groups(model)))

    def _groups(self, model: nn.Module) -> Iterator[dict[str, Any]]:
        groups: dict[tuple[float, float], list[nn.Parameter]] = {}
        rest = self.weight_decay if self.decayed == "all" else 0.0
        names = [name for name, _ in model.named_parameters()]
        own = {
            name: share for pattern, share in self.rates.items() for name in match(pattern, names, "optimizer.rates")
        }
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:
                continue
            is_bias = name.rpartition(".")[2].startswith("bias")  # torch's "bias", and "bias_0_1" of a composite
            share = own.get(name, self.bias_rate if is_bias else 1.0)
            decay = self.weight_decay if parameter.ndim > 1 and not is_bias else rest
            groups.setdefault((decay, share), []).append(parameter)
        for (decay, share), parameters in groups.items():
            yield {"params": parameters, "weight_decay": decay, "lr": self.rate * share, "share": share}


class Sgd(OptimizerTable):
    """Stochastic gradient descent.

    Attributes:
        momentum: How much of the last step is taken again.
        nesterov: Whether the gradient is taken ahead.
    """

    kind: Literal["sgd"] = "sgd"
    momentum: Kept = 0.9
    nesterov: bool = False

    @field_validator("nesterov")
    @classmethod
    def _has_momentum(cls, value: bool, info: ValidationInfo) -> bool:  # noqa: FBT001
        if value and info.data.get("momentum") == 0:
            raise ValueError("there is no momentum to look ahead with; set it to false, or optimizer.momentum above 0")
        return value

    def over(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        """Returns torch's."""
        return torch.optim.SGD(groups, momentum=self.momentum, nesterov=self.nesterov, fused=True)


class AdamW(OptimizerTable):
    """Adam with decay apart from the gradient.

    Attributes:
        betas: How much of the running means of gradient and squared gradient is kept.
        epsilon: What keeps the quotient finite.
    """

    kind: Literal["adamw"] = "adamw"
    betas: tuple[Kept, Kept] = (0.9, 0.999)
    epsilon: float = Field(default=1e-8, gt=0)

    def over(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        """Returns torch's."""
        return torch.optim.AdamW(groups, betas=self.betas, eps=self.epsilon, fused=True)


Optimizer = Annotated[Sgd | AdamW, Field(discriminator="kind")]
