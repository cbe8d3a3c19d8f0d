"""Batches of a source, in order, one slice per rank, prefetched in threads."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cruciform.data.grain import read_ahead
from cruciform.data.order import Order, share_of
from cruciform.data.samples.randomness import KeyedGenerator, SampleGenerator
from cruciform.data.samples.source import Image, Sample, Source, is_finite
from cruciform.data.transforms.foreign import ForeignTransform
from cruciform.data.transforms.transforms import Transform
from cruciform.errors import BadSampleError, DataError

MOST_TRIED = 100


class Batch(NamedTuple):
    """One rank's slice of the batch of a step.

    Attributes:
        images: (samples, channels, …), channels last in memory.
        labels: Their class indices.
        numbers: Their indices in the source.
        counted: Number of samples that count: all, or none where the batch has fewer samples than ranks and this is a
            placeholder.
        total: Number of samples of all ranks, including unreadable ones.
        bad: The errors of the unreadable samples of the slice, which are skipped.
    """

    images: Tensor
    labels: Tensor
    numbers: tuple[int, ...]
    counted: int
    total: int
    bad: tuple[BadSampleError, ...] = ()


@dataclass(frozen=True)
class Loader:
    """Reads batches.

    Attributes:
        source: The samples.
        order: Their order.
        transforms: Applied to each sample, in order.
        seed: Of the transforms.
        rank: Of this process.
        world: Number of processes.
        threads: Number of prefetching threads.
    """

    source: Source
    order: Order
    transforms: Sequence[Transform] = ()
    seed: int = 0
    rank: int = 0
    world: int = 1
    threads: int = 2

    def read(self, step: int) -> Batch:
        """Read the slice of one step; the same step always gives the same batch."""
        positions = self.order.positions(step)
        mine = share_of(positions, self.rank, self.world)
        # Every rank must take part in every step; one without samples computes a placeholder that does not count.
        numbers = self.order.numbers(step, mine or positions[:1])
        random = KeyedGenerator(self.seed)
        epoch = self.order.epoch_of(step)
        samples, bad = self._samples(numbers)
        counted = len(samples) if mine else 0
        if not samples:
            samples = self._placeholder(numbers[0])
        images = []
        for number, sample in samples.items():
            images.append(self._transformed(number, sample.image, random.at(epoch, number)))
        return Batch(
            _stack(images),
            torch.tensor([sample.label for sample in samples.values()]),
            tuple(samples),
            counted=counted,
            total=len(positions),
            bad=tuple(bad) if mine else (),
        )

    def _transformed(self, number: int, image: Image, draws: SampleGenerator) -> Image:
        try:
            for transform in self.transforms:
                image = transform(image, draws)
            if not is_finite(image):  # sources return finite samples only
                raise DataError("the transforms give NaN or Inf")
        except DataError as error:
            raise DataError(f"{self.source.describe(number)}: {error}") from error
        return image

    def _samples(self, numbers: Sequence[int]) -> tuple[dict[int, Sample], list[BadSampleError]]:
        """Read samples; return the errors of unreadable ones separately."""
        samples, bad = {}, []
        for number in numbers:
            try:
                samples[number] = self.source[number]
            except BadSampleError as error:
                bad.append(error)
        return samples, bad

    def _placeholder(self, number: int) -> dict[int, Sample]:
        """Find a readable sample after an unreadable one: the rank must compute something, though it won't count."""
        last: BadSampleError | None = None
        for step in range(1, min(len(self.source), MOST_TRIED)):
            other = (number + step) % len(self.source)
            try:
                return {other: self.source[other]}
            except BadSampleError as error:
                last = error
        raise DataError(f"almost no sample can be read; the last one tried: {last}")

    @contextmanager
    def batches(self, steps: range) -> Iterator[Iterator[Batch]]:
        """Yield the batches of consecutive steps; threads end with the block."""
        foreign = any(isinstance(transform, ForeignTransform) for transform in self.transforms)
        threads = 0 if foreign else self.threads
        with read_ahead(self.read, steps, threads=threads, buffered=2 * threads) as batches:
            yield batches


def input_size(source: Source, transforms: Sequence[Transform]) -> tuple[int, ...]:
    """Return the channels and spatial size of a sample after the transforms."""
    return tuple(Loader(source, Order(len(source), 1), transforms).read(0).images.shape[1:])


def _stack(images: Sequence[Image]) -> Tensor:
    if len({image.shape for image in images}) > 1:
        sizes = ", ".join(sorted({"×".join(map(str, image.shape)) for image in images}))
        raise DataError(f"the images of a batch have different sizes ({sizes}); add a crop to the transforms")
    return torch.from_numpy(np.stack(images)).movedim(-1, 1)
