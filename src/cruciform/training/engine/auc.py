"""The area under the ROC curve, computed from ranks (Mann and Whitney); ties count half.

For two classes it is that of the second; for more, the mean over classes, one against the rest, as in MedMNIST.
"""

import torch
from torch import Tensor


def area_under_curve(scores: Tensor, labels: Tensor) -> float | None:
    """Return the area under the ROC curve; None where a class, or the rest, has no sample.

    Args:
        scores: (samples, classes); higher is more likely.
        labels: The true class indices.
    """
    classes = [1] if scores.shape[1] == 2 else range(scores.shape[1])
    areas = [_area(scores[:, number].double(), labels == number) for number in classes]
    known = [area for area in areas if area is not None]
    return sum(known) / len(known) if len(known) == len(areas) else None


def _area(scores: Tensor, positive: Tensor) -> float | None:
    count, others = int(positive.sum()), int((~positive).sum())
    if not count or not others:
        return None
    _, place, times = torch.unique(scores, return_inverse=True, return_counts=True)
    last = times.cumsum(0).double()
    ranks = (last - (times - 1) / 2)[place]  # the mean rank of equal scores, counted from 1
    return float((ranks[positive].sum() - count * (count + 1) / 2) / (count * others))
