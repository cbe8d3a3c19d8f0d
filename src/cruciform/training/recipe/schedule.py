"""Learning rate schedules: functions of the step, so that only the plateau has a state.

γ₀ base learning rate, γ(t) learning rate at step t, λ decay, T number of steps
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from cruciform.training.tables.table import Table

Fraction = Annotated[float, Field(ge=0, le=1)]


class Moment(NamedTuple):
    """The point in training that a learning rate is computed for.

    Attributes:
        step: t, from 0.
        steps: T.
        steps_per_epoch: Steps in an epoch.
        lr: γ₀.
    """

    step: int
    steps: int
    steps_per_epoch: int
    lr: float

    @property
    def passed(self) -> float:
        """The fraction of training that has passed."""
        return self.step / self.steps

    @property
    def epoch(self) -> float:
        """The number of epochs that have passed, fractions included."""
        return self.step / self.steps_per_epoch


class Plateau(Table):
    """Reduce the learning rate when the accuracy stops improving, as the paper's authors did by hand.

    Attributes:
        patience: Evaluations without improvement before a reduction.
        threshold: Smallest gain in top-1 accuracy that counts as an improvement.
        factor: What the learning rate is multiplied by.
        max_reductions: Largest number of reductions.
    """

    patience: int = Field(default=3, ge=1)
    threshold: float = Field(default=0.001, ge=0)
    factor: float = Field(default=0.1, gt=0, lt=1)
    max_reductions: int = Field(default=3, ge=1)


@dataclass
class PlateauState:
    """The state of a plateau schedule.

    Attributes:
        best: The best accuracy so far.
        waited: Evaluations since.
        reductions: Number of reductions so far.
    """

    best: float = 0.0
    waited: int = 0
    reductions: int = 0

    def update(self, accuracy: float, plateau: Plateau) -> None:
        """Record the accuracy of an evaluation."""
        if accuracy > self.best + plateau.threshold:
            self.best, self.waited = accuracy, 0
            return
        self.waited += 1
        if self.waited >= plateau.patience and self.reductions < plateau.max_reductions:
            self.waited, self.reductions = 0, self.reductions + 1


class Curve(Table, ABC):
    """Base of schedules."""

    plateau: Plateau | None = None

    @abstractmethod
    def factor(self, now: Moment) -> float:
        """Return γ(t)/γ₀ without the plateau."""

    def lr_factor(self, now: Moment, state: PlateauState) -> float:
        """Return γ(t)/γ₀."""
        reduced = self.plateau.factor**state.reductions if self.plateau else 1.0
        return self.factor(now) * reduced


class Constant(Curve):
    """A constant learning rate."""

    kind: Literal["constant"] = "constant"

    def factor(self, now: Moment) -> float:
        """Return 1."""
        return 1.0


class Inverse(Curve):
    """The paper's schedule: γ(t) = γ₀ (1 + γ₀ λ t)⁻¹ (Bottou 2012), t in steps.

    Attributes:
        decay: λ.
        milestones: Fractions of training at which the learning rate is also divided by 10, as was done by hand.
    """

    kind: Literal["inverse"] = "inverse"
    decay: float = Field(ge=0)
    milestones: tuple[Fraction, ...] = ()

    def factor(self, now: Moment) -> float:
        """Return (1 + γ₀ λ t)⁻¹ times a power of 0.1."""
        reduced = float(0.1 ** sum(now.passed >= point for point in self.milestones))
        return reduced / (1 + now.lr * self.decay * now.step)


class MultiStep(Curve):
    """Multiply the learning rate by a factor at milestones.

    Attributes:
        milestones: Fractions of training.
        gamma: The factor.
    """

    kind: Literal["multistep"] = "multistep"
    milestones: tuple[Fraction, ...]
    gamma: float = Field(default=0.1, gt=0)

    def factor(self, now: Moment) -> float:
        """Return a power of ``gamma``."""
        return float(self.gamma ** sum(now.passed >= point for point in self.milestones))


class Poly(Curve):
    """Caffe's polynomial decay: γ(t) = γ₀ (1 − t/T)^p.

    Attributes:
        power: p.
    """

    kind: Literal["poly"] = "poly"
    power: float = Field(default=0.5, gt=0)

    def factor(self, now: Moment) -> float:
        """Return (1 − t/T)^p."""
        return float((1 - now.passed) ** self.power)


class Cosine(Curve):
    """Cosine annealing after a linear warm-up.

    Attributes:
        warmup_epochs: Epochs of warm-up.
        end_factor: Learning rate at the end, as a fraction of ``lr``.
    """

    kind: Literal["cosine"] = "cosine"
    warmup_epochs: float = Field(default=0, ge=0)
    end_factor: Fraction = 0.0

    def factor(self, now: Moment) -> float:
        """Rise linearly during the warm-up, then fall along a half cosine."""
        if now.epoch < self.warmup_epochs:
            return (now.step + 1) / (self.warmup_epochs * now.steps_per_epoch + 1)
        start = self.warmup_epochs * now.steps_per_epoch
        passed = (now.step - start) / max(1.0, now.steps - start)
        return self.end_factor + (1 - self.end_factor) * (1 + math.cos(math.pi * passed)) / 2


class OneCycle(Curve):
    """One linear rise, one linear fall.

    Attributes:
        start_factor: Learning rate at the start, as a fraction of ``lr``.
        pct_start: Fraction of training after which the learning rate is ``lr``.
        end_factor: Learning rate at the end, as a fraction of ``lr``.
    """

    kind: Literal["one-cycle"] = "one-cycle"
    start_factor: Fraction = 0.2
    pct_start: float = Field(default=0.25, gt=0, lt=1)
    end_factor: Fraction = 0.05

    def factor(self, now: Moment) -> float:
        """Return the height of two straight lines."""
        if now.passed < self.pct_start:
            return self.start_factor + (1 - self.start_factor) * now.passed / self.pct_start
        return 1 + (self.end_factor - 1) * (now.passed - self.pct_start) / (1 - self.pct_start)


Schedule = Annotated[Constant | Inverse | MultiStep | Poly | Cosine | OneCycle, Field(discriminator="kind")]
