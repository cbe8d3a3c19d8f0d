"""Whitening of patches: a first layer that is computed from images instead of being learned.

Filters are the eigenvectors of the covariance of all patches, each divided by the square root of its eigenvalue, and
their negatives after them, since a non-linearity like ReLU or GELU would lose half of each. What they give has
variance 1 and is uncorrelated, so the next layer starts from evenly scaled directions of the data.
"""

import torch
from torch import Tensor


def whitening_kernel(images: Tensor, kernel: int, *, regulariser: float) -> Tensor:
    """Return the filters (2·c·kernel², c, kernel, kernel) that whiten the patches of some images.

    Args:
        images: (samples, c, height, width), as the network is given them.
        kernel: Height and width of a patch.
        regulariser: Added to each eigenvalue: directions of little variance are mostly noise.
    """
    c = images.shape[1]
    patches = images.unfold(2, kernel, 1).unfold(3, kernel, 1).movedim(1, 3).reshape(-1, c * kernel * kernel)
    # In 64 bits: the sum over millions of patches would lose in 32 bits what the smallest eigenvalues are.
    values, vectors = torch.linalg.eigh(torch.cov(patches.T.double()))
    filters = (vectors / (values + regulariser).sqrt()).T.flip(0)  # the strongest direction first
    # Eigenvectors are known up to their sign, which libraries choose differently.
    largest = filters.abs().argmax(1, keepdim=True)
    filters = filters * filters.gather(1, largest).sign()
    return torch.cat([filters, -filters]).reshape(-1, c, kernel, kernel).to(images.dtype)
