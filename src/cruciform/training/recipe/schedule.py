"""Learning rates: a schedule is a function of the step, so nothing of it needs to be remembered, but for the plateau.

γ₀ initial rate, γ(t) rate at step t, λ weight decay, T all steps
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from cruciform.training.recipe.table import Table

Share = Annotated[float, Field(ge=0, le=1)]


class Moment(NamedTuple):
    """When a rate is asked for.

    Attributes:
        step: t, from 0.
        steps: T.
        steps_per_epoch: Steps in an epoch.
        rate: γ₀.
    """

    step: int
    steps: int
    steps_per_epoch: int
    rate: float

    @property
    def passed(self) -> float:
        """The share of training that has passed."""
        return self.step / self.steps

    @property
    def epoch(self) -> float:
        """The epochs that have passed, parts of one included."""
        return self.step / self.steps_per_epoch


class Plateau(Table):
    """Reduces the rate when the accuracy no longer rises, as the paper's authors did by hand.

    Attributes:
        patience: Evaluations without a gain that are waited for.
        least: The gain in top-1 accuracy that counts as one.
        factor: What the rate is multiplied by.
        most: Reductions at most.
    """

    patience: int = Field(default=3, ge=1)
    least: float = Field(default=0.001, ge=0)
    factor: float = Field(default=0.1, gt=0, lt=1)
    most: int = Field(default=3, ge=1)


@dataclass
class PlateauState:
    """What a plateau must remember.

    Attributes:
        best: The best accuracy so far.
        waited: Evaluations since.
        reductions: How often the rate was reduced.
    """

    best: float = 0.0
    waited: int = 0
    reductions: int = 0

    def see(self, accuracy: float, plateau: Plateau) -> None:
        """Takes an accuracy into account."""
        if accuracy > self.best + plateau.least:
            self.best, self.waited = accuracy, 0
            return
        self.waited += 1
        if self.waited >= plateau.patience and self.reductions < plateau.most:
            self.waited, self.reductions = 0, self.reductions + 1


class Curve(Table, ABC):
    """Base of schedules."""

    plateau: Plateau | None = None

    @abstractmethod
    def factor(self, now: Moment) -> float:
        """Returns γ(t)/γ₀, the plateau aside."""

    def rate_factor(self, now: Moment, state: PlateauState) -> float:
        """Returns γ(t)/γ₀."""
        reduced = self.plateau.factor**state.reductions if self.plateau else 1.0
        return self.factor(now) * reduced


class Constant(Curve):
    """The same rate throughout."""

    kind: Literal["constant"] = "constant"

    def factor(self, now: Moment) -> float:
        """1."""
        return 1.0


class Inverse(Curve):
    """The paper's: γ(t) = γ₀ (1 + γ₀ λ t)⁻¹ (Bottou 2012), t in steps.

    Attributes:
        decay: λ.
        at: Points, as shares of the whole training, at which the rate is divided by 10 besides: what was done by hand.
    """

    kind: Literal["inverse"] = "inverse"
    decay: float = Field(ge=0)
    at: tuple[Share, ...] = ()

    def factor(self, now: Moment) -> float:
        """(1 + γ₀ λ t)⁻¹, and a power of a tenth."""
        return float(0.1 ** sum(now.passed >= point for point in self.at)) / (1 + now.rate * self.decay * now.step)


class Steps(Curve):
    """Multiplied by a factor at some points.

    Attributes:
        at: The points, as shares of the whole training.
        by: The factor.
    """

    kind: Literal["steps"] = "steps"
    at: tuple[Share, ...]
    by: float = Field(default=0.1, gt=0)

    def factor(self, now: Moment) -> float:
        """A power of ``by``."""
        return float(self.by ** sum(now.passed >= point for point in self.at))


class Poly(Curve):
    """Caffe's: γ(t) = γ₀ (1 − t/T)^p.

    Attributes:
        power: p.
    """

    kind: Literal["poly"] = "poly"
    power: float = Field(default=0.5, gt=0)

    def factor(self, now: Moment) -> float:
        """(1 − t/T)^p."""
        return float((1 - now.passed) ** self.power)


class Cosine(Curve):
    """A half wave, after a linear start.

    Attributes:
        warmup: Epochs of the linear start.
        end: The share of the rate that is left at the end.
    """

    kind: Literal["cosine"] = "cosine"
    warmup: float = Field(default=0, ge=0)
    end: Share = 0.0

    def factor(self, now: Moment) -> float:
        """Rises over the first epochs, then falls along a cosine."""
        if now.epoch < self.warmup:
            return (now.step + 1) / (self.warmup * now.steps_per_epoch + 1)
        start = self.warmup * now.steps_per_epoch
        passed = (now.step - start) / max(1.0, now.steps - start)
        return self.end + (1 - self.end) * (1 + math.cos(math.pi * passed)) / 2


class OneCycle(Curve):
    """Straight up, straight down.

    Attributes:
        start: The share of the rate at the start.
        peak: The share of training after which the rate is whole.
        end: The share of the rate at the end.
    """

    kind: Literal["one-cycle"] = "one-cycle"
    start: Share = 0.2
    peak: float = Field(default=0.25, gt=0, lt=1)
    end: Share = 0.05

    def factor(self, now: Moment) -> float:
        """Two straight lines."""
        if now.passed < self.peak:
            return self.start + (1 - self.start) * now.passed / self.peak
        return 1 + (self.end - 1) * (now.passed - self.peak) / (1 - self.peak)


Schedule = Annotated[Constant | Inverse | Steps | Poly | Cosine | OneCycle, Field(discriminator="kind")]
