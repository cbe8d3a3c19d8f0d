"""Global contrast normalization and ZCA whitening, as Goodfellow et al. (2013) prepared CIFAR-10 for maxout networks.

    GCN, an image x of D values:   x ← s · (x − mean x) / ‖x − mean x‖₂          s = 55
    ZCA, N images X less their mean:   P = (XᵀX/N + ε·I)^(−1/2),   x ← (x − mean) P    ε = 0.1

Fitted on the training images once. The whitened images are stored in a cache with checksums and memory-mapped by all
processes, so that they are bit-identical between runs, whatever the number of ranks or threads.
"""

import hashlib
import math
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from cruciform.data.samples.recipe_setting import RecipeSetting
from cruciform.data.samples.source import ArraySource, Image, Part, Source
from cruciform.errors import DamagedError, DataError, OptionError
from cruciform.files import new_directory, read_manifest

CACHE = "CRUCIFORM_CACHE"
"""Environment variable: the folder for files that can be computed again."""

CHUNK = 5_000  # batch size: 61 MB of 32×32×3 in float32


@dataclass(frozen=True)
class Whitening(RecipeSetting):
    """Settings of GCN and ZCA.

    Attributes:
        scale: s, the norm of every image after GCN.
        eps: ε, which keeps directions of small variance from being amplified.
    """

    scale: float = 55.0
    eps: float = 0.1

    def __post_init__(self) -> None:
        if not (0 < self.scale < math.inf and 0 < self.eps < math.inf):
            raise OptionError(f"scale and eps must be above 0, not {self.scale} and {self.eps}")


def whiten(train: Source, others: list[Source], whitening: Whitening) -> list[ArraySource]:
    """Return the training images and the others, whitened with the statistics of the training images."""
    arrays = [_as_arrays(source) for source in (train, *others)]
    directory = cache_folder() / f"gcn-zca-{_key(arrays, whitening)[:16]}"
    try:
        read_manifest(directory)
    except DamagedError:  # missing or damaged: compute it again
        for array in arrays:
            _refuse_nonfinite(array)
        _write(directory, [array.images for array in arrays], whitening)
    return [
        ArraySource(np.load(directory / f"{number}.npy", mmap_mode="r"), array.labels, array.classes)
        for number, array in enumerate(arrays)
    ]


def cache_folder() -> Path:
    """Return the cache folder."""
    if folder := os.environ.get(CACHE):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cruciform"


def normalize_contrast(rows: NDArray[np.float32], scale: float) -> NDArray[np.float32]:
    """Return GCN of images that are rows; a constant image becomes zeros."""
    centered = rows - rows.mean(axis=1, keepdims=True, dtype=np.float64).astype(np.float32)
    lengths = np.sqrt((centered.astype(np.float64) ** 2).sum(axis=1, keepdims=True))
    lengths[lengths < 1e-8] = 1.0  # as the original does: such an image is all zeros already
    scaled: NDArray[np.float32] = (centered * (scale / lengths)).astype(np.float32)
    return scaled


def fit_zca(rows: NDArray[np.float32], eps: float) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the mean and the matrix P of images that are rows."""
    mean = rows.mean(axis=0, dtype=np.float64)
    covariance = np.zeros((rows.shape[1],) * 2)
    for first in range(0, len(rows), CHUNK):
        chunk = torch.from_numpy(rows[first : first + CHUNK] - mean.astype(np.float32))
        covariance += (chunk.T @ chunk).numpy()
    values, vectors = np.linalg.eigh(covariance / len(rows))
    matrix = (vectors / np.sqrt(values + eps)) @ vectors.T
    return mean.astype(np.float32), matrix.astype(np.float32)


def _write(directory: Path, images: list[Image], whitening: Whitening) -> None:
    rows = [normalize_contrast(image.reshape(len(image), -1).astype(np.float32), whitening.scale) for image in images]
    mean, matrix = fit_zca(rows[0], whitening.eps)
    with new_directory(directory, manifest={"scale": whitening.scale, "eps": whitening.eps}) as part:
        for number, (image, row) in enumerate(zip(images, rows, strict=True)):
            white = np.concatenate(
                [
                    (torch.from_numpy(row[first : first + CHUNK] - mean) @ torch.from_numpy(matrix)).numpy()
                    for first in range(0, len(row), CHUNK)
                ]
            )
            np.save(part / f"{number}.npy", white.reshape(image.shape))


def _as_arrays(source: Source) -> ArraySource:
    if isinstance(source, ArraySource):
        return source
    if isinstance(source, Part) and isinstance(source.whole, ArraySource):
        whole, numbers = source.whole, np.asarray(source.numbers)
        return ArraySource(whole.images[numbers], whole.labels[numbers], whole.classes)
    raise DataError("data.whiten needs images of a fixed size in memory, as cifar10 has; drop it")


def _refuse_nonfinite(source: ArraySource) -> None:
    """Raise where a sample is NaN or Inf: it would spread to all others through the statistics."""
    if source.images.dtype.kind == "f":
        for number in range(len(source)):
            source[number]


def _key(arrays: list[ArraySource], whitening: Whitening) -> str:
    digest = hashlib.sha256(repr(whitening).encode())
    for array in arrays:
        digest.update(repr(array.images.shape).encode())
        digest.update(np.ascontiguousarray(array.images).data)
    return digest.hexdigest()
