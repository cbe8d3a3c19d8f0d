"""Exact evaluation: every sample once, whatever the number of ranks; counts are summed, never averages averaged."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cruciform.data.loader import Batch, Loader
from cruciform.data.samples.source import Source
from cruciform.errors import DataError, NonFiniteError
from cruciform.training.engine.auc import area_under_curve
from cruciform.training.engine.learner import Learner

TOP = 5
GENTLER = "Train from scratch with a smaller optimizer.rate, clip=1.0 or precision=fp32"
"""What helps a network whose numbers grow beyond all bounds."""


@dataclass(frozen=True)
class Evaluation:
    """What a network gets right.

    Attributes:
        samples: How many were looked at.
        loss: Mean cross entropy.
        top1: Share whose class was the network's first guess.
        top5: Share whose class was among its first five.
        top1_mirrored: Share whose class was the first guess of the mean over each image and its mirror image; None
            where the recipe does not ask for it.
        auc: The area under the ROC curve; None where the recipe does not ask for it, or a class has no sample.
        notices: What could not be judged, and why.
        confusion: How often class i (row) was taken for class j (column).
    """

    samples: int
    loss: float
    top1: float
    top5: float
    confusion: tuple[tuple[int, ...], ...]
    top1_mirrored: float | None = None
    auc: float | None = None
    notices: tuple[str, ...] = ()

    def per_class(self) -> list[float]:
        """Returns the share of each class that was recognized."""
        return [row[index] / max(1, sum(row)) for index, row in enumerate(self.confusion)]

    def summary(self) -> dict[str, Any]:
        """Returns the figures for a log."""
        figures = {"samples": self.samples, "loss": self.loss, "top1": self.top1, "top5": self.top5}
        asked = {"top1_mirrored": self.top1_mirrored, "auc": self.auc}
        return figures | {name: value for name, value in asked.items() if value is not None}


class EvaluationStopped(Exception):  # noqa: N818  (not an error)
    """A signal came while a network was judged."""


def evaluate(
    learner: Learner,
    loader: Loader,
    *,
    advance: Callable[[int, int], None] = lambda done, of: None,
    stop: Callable[[], bool] = lambda: False,
) -> Evaluation:
    """Judges a network on all samples of a loader.

    Args:
        learner: The network.
        loader: One epoch of it, this rank's share.
        advance: Told how many batches of how many are done.
        stop: Asked after each batch; true ends the evaluation with ``EvaluationStopped``, on all ranks.
    """
    runtime, classes = learner.runtime, len(loader.source.classes)
    confusion = torch.zeros(classes, classes, dtype=torch.int64)
    sums = torch.zeros(3, dtype=torch.float64)  # loss, top 5, top 1 of image and mirror image together
    asked = learner.recipe.evaluation
    # Every rank fills in what it has seen; summed, that is all of them.
    scores = torch.zeros(len(loader.source) if asked.auc else 0, classes + 1, dtype=torch.float64)
    steps = loader.order.steps_per_epoch
    stopped = False
    bad: list[str] = []
    broken: list[str] = []
    # Every rank has seen other batches: the statistics that count, and are saved, are the leader's.
    runtime.share_(learner.evaluated().buffers())
    with loader.batches(range(steps)) as batches:
        for number, batch in enumerate(batches, start=1):
            logits = learner.logits(batch)[: batch.counted].cpu()
            both = logits + learner.logits(batch, mirror=True)[: batch.counted].cpu() if asked.mirror else logits
            labels = batch.labels[: batch.counted]
            bad += map(str, batch.bad)
            broken += nonfinite_samples(both, batch, loader.source)
            _count_(confusion, sums, logits, labels)
            if asked.auc:
                numbers = torch.tensor(batch.numbers[: batch.counted], dtype=torch.int64)
                scores[numbers] = torch.cat([logits.double().softmax(1), labels[:, None] + 1.0], 1)
            sums[2] += (both.argmax(1) == labels).sum()
            advance(number, steps)
            if stop():
                stopped = True
                break
    if any(runtime.most(int(stopped))):
        raise EvaluationStopped
    bad = runtime.gather(bad)
    allowed = learner.recipe.data.max_bad
    if len(bad) > allowed * len(loader.source):
        raise DataError(
            f"{len(bad):,} samples can't be read and not be judged; data.max_bad={allowed:g}; the last: {bad[-1]}"
        )
    broken = runtime.gather(broken)
    if broken:
        raise NonFiniteError(
            f"the network's outputs for {len(broken):,} of {len(loader.source):,} samples are NaN or Inf, though the "
            f"samples are not, so it can't be evaluated; the first: {broken[0]}. {GENTLER}"
        )
    confusion = runtime.sum(confusion)
    loss, top5, mirrored = runtime.sum(sums).tolist()
    samples = int(confusion.sum())
    notices = [f"not judged: {what}" for what in bad]
    auc = _auc(runtime.sum(scores)) if asked.auc else None
    if asked.auc and auc is None:
        missing = [name for name, row in zip(loader.source.classes, confusion, strict=True) if not row.any()]
        notices.append(f"no area under the ROC curve: no sample judged is of the class {' or '.join(missing)}")
    return Evaluation(
        samples=samples,
        loss=loss / samples,
        top1=int(confusion.diagonal().sum()) / samples,
        top5=top5 / samples,
        confusion=tuple(tuple(row) for row in confusion.tolist()),
        top1_mirrored=mirrored / samples if asked.mirror else None,
        auc=auc,
        notices=tuple(notices),
    )


def nonfinite_samples(values: Tensor, batch: Batch, source: Source) -> list[str]:
    """Returns which samples of a batch, a row each, have values that are NaN or Inf: where they are stored."""
    rows = values[: batch.counted].flatten(1).isfinite().all(1).logical_not().nonzero().flatten().tolist()
    return [source.describe(batch.numbers[row]) for row in rows]


def _auc(scores: Tensor) -> float | None:
    judged = scores[scores[:, -1] > 0]  # what can't be read has no label here
    return area_under_curve(judged[:, :-1], judged[:, -1].long() - 1)


def _count_(confusion: Tensor, sums: Tensor, logits: Tensor, labels: Tensor) -> None:
    classes = len(confusion)
    if not len(labels):
        return
    pairs = labels * classes + logits.argmax(1)
    confusion += torch.bincount(pairs, minlength=classes * classes).reshape(classes, classes)
    best = logits.topk(min(TOP, classes), dim=1).indices
    sums[0] += F.cross_entropy(logits.double(), labels, reduction="sum")
    sums[1] += (best == labels[:, None]).any(1).sum()
