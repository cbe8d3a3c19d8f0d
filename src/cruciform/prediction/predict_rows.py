"""Predictions as rows: best classes and scores of every input, or the error."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cruciform.errors import DataError, DeployError
from cruciform.prediction.inputs import Inputs
from cruciform.prediction.predictor import Predictor


class PredictionSettings(NamedTuple):
    """How predictions are made.

    Attributes:
        top: How many classes are kept for each input, the best ones.
        batch: The batch size.
        part: Inputs in a part, the unit that an interrupted prediction resumes from.
    """

    top: int = 5
    batch: int = 16
    part: int = 1024


def predict_rows(
    predictor: Predictor, inputs: Inputs, numbers: range, settings: PredictionSettings
) -> list[dict[str, Any]]:
    """Return a row for each input: the best classes and scores, or why there are none."""
    rows: list[dict[str, Any]] = []
    names = predictor.classes
    for first in range(numbers.start, numbers.stop, settings.batch):
        batch = range(first, min(first + settings.batch, numbers.stop))
        images: dict[int, NDArray[np.float32]] = {}
        errors: dict[int, str] = {}
        for number in batch:
            try:
                images[number] = predictor.prepare(inputs.image(number))
            except DataError as error:
                errors[number] = str(error)
        found = _scores(predictor, list(images.values()), settings.top)
        answers = dict(zip(images, found, strict=True))
        nonfinite = [number for number, answer in answers.items() if answer is None]
        errors |= dict.fromkeys(nonfinite, "the network's output for this image contains NaN or Inf")
        for number in batch:
            classes, scores = answers.get(number) or (None, None)
            rows.append(
                {
                    "number": number,
                    "name": inputs.name(number),
                    "classes": classes,
                    "class_names": [names[place] for place in classes] if classes and names else None,
                    "scores": scores,
                    "error": errors.get(number),
                }
            )
    return rows


def _scores(
    predictor: Predictor, images: Sequence[NDArray[np.float32]], top: int
) -> list[tuple[list[int], list[float]] | None]:
    """Return the best classes and softmax scores of each image; None for NaN or Inf."""
    if not images:
        return []
    logits = predictor.engine(np.stack(images)).astype(np.float64)
    if predictor.classes and logits.shape[1:] != (len(predictor.classes),):
        raise DeployError(
            f"the network's output has shape {logits.shape[1:]} for an image, but {len(predictor.classes)} class names"
        )
    finite = [bool(np.isfinite(row).all()) for row in logits]
    logits[[not each for each in finite]] = 0.0
    scores = np.exp(logits - logits.max(axis=1, keepdims=True))
    scores /= scores.sum(axis=1, keepdims=True)
    best = np.argsort(-scores, axis=1, kind="stable")[:, :top]
    return [
        (places.tolist(), row[places].astype(np.float32).tolist()) if is_finite else None
        for places, row, is_finite in zip(best, scores, finite, strict=True)
    ]
