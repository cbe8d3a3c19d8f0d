"""Exact evaluation: every sample once, whatever the number of ranks; counts are summed, not averages averaged."""

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
STABILITY_ADVICE = "Train from scratch with a smaller optimizer.lr, grad_clip_norm=1.0 or precision=fp32"
"""What helps against divergence."""


@dataclass(frozen=True)
class Evaluation:
    """The metrics of a network.

    Attributes:
        samples: Number of samples evaluated.
        loss: Mean cross entropy.
        top1: Top-1 accuracy, as a fraction.
        top5: Top-5 accuracy, as a fraction.
        top1_flip_tta: Top-1 accuracy with horizontal-flip test-time augmentation; None where the recipe does not
            enable it.
        auc: The area under the ROC curve; None where the recipe does not enable it, or a class has no sample.
        notices: What could not be evaluated, and why.
        confusion: Confusion matrix: number of samples of class i (row) predicted as class j (column).
    """

    samples: int
    loss: float
    top1: float
    top5: float
    confusion: tuple[tuple[int, ...], ...]
    top1_flip_tta: float | None = None
    auc: float | None = None
    notices: tuple[str, ...] = ()

    def per_class(self) -> list[float]:
        """Return the accuracy of each class."""
        return [row[index] / max(1, sum(row)) for index, row in enumerate(self.confusion)]

    def summary(self) -> dict[str, Any]:
        """Return the metrics for a log."""
        figures = {"samples": self.samples, "loss": self.loss, "top1": self.top1, "top5": self.top5}
        optional = {"top1_flip_tta": self.top1_flip_tta, "auc": self.auc}
        return figures | {name: value for name, value in optional.items() if value is not None}


class EvaluationStopped(Exception):  # noqa: N818  (not an error)
    """A signal was received during an evaluation."""


def evaluate(
    learner: Learner,
    loader: Loader,
    *,
    on_progress: Callable[[int, int], None] = lambda done, of: None,
    stop: Callable[[], bool] = lambda: False,
) -> Evaluation:
    """Evaluate a network on all samples of a loader.

    Args:
        learner: The network.
        loader: One epoch of it is read, this rank's part.
        on_progress: Called with the number of batches done, and of all.
        stop: Called after each batch; true ends the evaluation with ``EvaluationStopped`` on all ranks.
    """
    runtime, classes = learner.runtime, len(loader.source.classes)
    confusion = torch.zeros(classes, classes, dtype=torch.int64)
    sums = torch.zeros(3, dtype=torch.float64)  # loss, top 5, top 1 with flip TTA
    settings = learner.recipe.evaluation
    # Every rank fills in its own samples; the sum over ranks has all of them.
    scores = torch.zeros(len(loader.source) if settings.auc else 0, classes + 1, dtype=torch.float64)
    steps = loader.order.steps_per_epoch
    stopped = False
    bad: list[str] = []
    broken: list[str] = []
    # Every rank has its own batch statistics: those of the leader are used, and saved.
    runtime.share_(learner.evaluated().buffers())
    with loader.batches(range(steps)) as batches:
        for number, batch in enumerate(batches, start=1):
            logits = learner.logits(batch)[: batch.counted].cpu()
            flipped = learner.logits(batch, flip=True)[: batch.counted].cpu() if settings.flip_tta else None
            both = logits if flipped is None else logits + flipped
            labels = batch.labels[: batch.counted]
            bad += map(str, batch.bad)
            broken += nonfinite_samples(both, batch, loader.source)
            _count_(confusion, sums, logits, labels)
            if settings.auc:
                numbers = torch.tensor(batch.numbers[: batch.counted], dtype=torch.int64)
                scores[numbers] = torch.cat([logits.double().softmax(1), labels[:, None] + 1.0], 1)
            sums[2] += (both.argmax(1) == labels).sum()
            on_progress(number, steps)
            if stop():
                stopped = True
                break
    if any(runtime.most(int(stopped))):
        raise EvaluationStopped
    bad = runtime.gather(bad)
    allowed = learner.recipe.data.max_bad
    if len(bad) > allowed * len(loader.source):
        raise DataError(
            f"{len(bad):,} of {len(loader.source):,} samples can't be read, more than data.max_bad={allowed:g} allows. "
            f"The last: {bad[-1]}"
        )
    broken = runtime.gather(broken)
    if broken:
        raise NonFiniteError(
            f"the network's outputs for {len(broken):,} of {len(loader.source):,} samples are NaN or Inf, though the "
            f"samples are not, so it can't be evaluated; the first: {broken[0]}. {STABILITY_ADVICE}"
        )
    confusion = runtime.sum(confusion)
    loss, top5, top1_flip_tta = runtime.sum(sums).tolist()
    samples = int(confusion.sum())
    notices = [f"skipped an unreadable test sample: {what}" for what in bad]
    auc = _auc(runtime.sum(scores)) if settings.auc else None
    if settings.auc and auc is None:
        missing = [name for name, row in zip(loader.source.classes, confusion, strict=True) if not row.any()]
        notices.append(
            f"the area under the ROC curve is undefined: the data has no sample of class {' or '.join(missing)}"
        )
    return Evaluation(
        samples=samples,
        loss=loss / samples,
        top1=int(confusion.diagonal().sum()) / samples,
        top5=top5 / samples,
        confusion=tuple(tuple(row) for row in confusion.tolist()),
        top1_flip_tta=top1_flip_tta / samples if settings.flip_tta else None,
        auc=auc,
        notices=tuple(notices),
    )


def nonfinite_samples(values: Tensor, batch: Batch, source: Source) -> list[str]:
    """Return the locations of the samples of a batch, a row each, whose values are NaN or Inf."""
    rows = values[: batch.counted].flatten(1).isfinite().all(1).logical_not().nonzero().flatten().tolist()
    return [source.describe(batch.numbers[row]) for row in rows]


def _auc(scores: Tensor) -> float | None:
    evaluated = scores[scores[:, -1] > 0]  # unreadable samples have no label here
    return area_under_curve(evaluated[:, :-1], evaluated[:, -1].long() - 1)


def _count_(confusion: Tensor, sums: Tensor, logits: Tensor, labels: Tensor) -> None:
    classes = len(confusion)
    if not len(labels):
        return
    pairs = labels * classes + logits.argmax(1)
    confusion += torch.bincount(pairs, minlength=classes * classes).reshape(classes, classes)
    best = logits.topk(min(TOP, classes), dim=1).indices
    sums[0] += F.cross_entropy(logits.double(), labels, reduction="sum")
    sums[1] += (best == labels[:, None]).any(1).sum()
