"""Base of optimizers: parameter groups with their learning rates and weight decay.

An optimizer is a table with a ``kind`` and a method ``make``, registered in ``OPTIMIZERS``. A recipe then takes it as
``optimizer = {kind = "NAME", lr = ...}``. ``sgd.py`` is an example.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import nn

from cruciform.registry import Registry
from cruciform.training.tables.patterns import match
from cruciform.training.tables.table import Table

DecayRate = Annotated[float, Field(ge=0, lt=1)]
"""The fraction of a running value that is kept in each step, such as momentum."""


class OptimizerTable(Table, ABC):
    """Base of optimizers.

    Attributes:
        lr: γ₀, the base learning rate, which the schedule scales.
        weight_decay: λ.
        decay_norm_and_bias: Whether biases and norm parameters decay too; by default only weights with more than one
            axis (kernels and matrices) do.
        bias_lr_mult: Learning rate of biases as a multiple of ``lr``; 2 in Caffe's models.
        lr_mult: Multiples of ``lr`` for parameters whose names match a pattern, as ``{"features.conv1.*" = 0.1}``.
    """

    kind: str
    lr: float = Field(gt=0)
    weight_decay: float = Field(default=0.0, ge=0)
    decay_norm_and_bias: bool = False
    bias_lr_mult: float = Field(default=1.0, gt=0)
    lr_mult: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)

    @abstractmethod
    def make(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        """Return the torch optimizer of these parameter groups."""

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return the optimizer of a network; ``lr_mult`` of each group holds its multiple of ``lr``."""
        return self.make(list(self._groups(model)))

    def _groups(self, model: nn.Module) -> Iterator[dict[str, Any]]:
        groups: dict[tuple[float, float], list[nn.Parameter]] = {}
        norm_and_bias_decay = self.weight_decay if self.decay_norm_and_bias else 0.0
        names = [name for name, _ in model.named_parameters()]
        by_pattern = {
            name: multiple
            for pattern, multiple in self.lr_mult.items()
            for name in match(pattern, names, "optimizer.lr_mult")
        }
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:
                continue
            is_bias = name.rpartition(".")[2].startswith("bias")  # torch's "bias", and "bias_0_1" of a composite
            multiple = by_pattern.get(name, self.bias_lr_mult if is_bias else 1.0)
            decay = self.weight_decay if parameter.ndim > 1 and not is_bias else norm_and_bias_decay
            groups.setdefault((decay, multiple), []).append(parameter)
        for (decay, multiple), parameters in groups.items():
            yield {"params": parameters, "weight_decay": decay, "lr": self.lr * multiple, "lr_mult": multiple}


OPTIMIZERS: Registry[type[OptimizerTable]] = Registry(
    "optimizer", package="cruciform.training.optimizers", group="cruciform.optimizers"
)
"""Optimizers by the ``kind`` that recipes give."""
