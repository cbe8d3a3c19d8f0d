"""Batches of a source, in order, each rank its own slice, read ahead in threads."""

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
    """One rank's slice of a step's batch.

    Attributes:
        images: (samples, channels, …), channels last in memory.
        labels: Their classes.
        numbers: Their numbers in the source.
        counted: How many count: all, or none where there were fewer samples than ranks and this is only a stand-in.
        total: How many all ranks have together, those that can't be read among them.
        bad: What is wrong with each sample of the slice that can't be read and was left out.
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
        source: Where from.
        order: Which samples come when.
        transforms: What is done to each, one after the other.
        seed: Of the random numbers that they draw.
        rank: Whose slice of each batch is read.
        world: How many slices there are.
        threads: How many threads read ahead.
    """

    source: Source
    order: Order
    transforms: Sequence[Transform] = ()
    seed: int = 0
    rank: int = 0
    world: int = 1
    threads: int = 2

    def read(self, step: int) -> Batch:
        """Reads the slice for one step; the same step gives the same batch, always."""
        positions = self.order.positions(step)
        mine = share_of(positions, self.rank, self.world)
        # Every rank must take part in every step; one that has nothing to add computes something and counts nothing.
        numbers = self.order.numbers(step, mine or positions[:1])
        random = KeyedGenerator(self.seed)
        epoch = self.order.epoch_of(step)
        samples, bad = self._samples(numbers)
        counted = len(samples) if mine else 0
        if not samples:
            samples = self._stand_in(numbers[0])
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
            if not is_finite(image):  # sources give none that is not
                raise DataError("the transforms make NaN or Inf of it")
        except DataError as error:
            raise DataError(f"{self.source.describe(number)}: {error}") from error
        return image

    def _samples(self, numbers: Sequence[int]) -> tuple[dict[int, Sample], list[BadSampleError]]:
        """Reads samples; those that can't be read are told apart and not kept silent."""
        samples, bad = {}, []
        for number in numbers:
            try:
                samples[number] = self.source[number]
            except BadSampleError as error:
                bad.append(error)
        return samples, bad

    def _stand_in(self, number: int) -> dict[int, Sample]:
        """Finds a sample behind one that can't be read: a rank must compute something, though it won't count."""
        last: BadSampleError | None = None
        for step in range(1, min(len(self.source), MOST_TRIED)):
            other = (number + step) % len(self.source)
            try:
                return {other: self.source[other]}
            except BadSampleError as error:
                last = error
        raise DataError(f"hardly any sample can be read; the last one tried: {last}")

    @contextmanager
    def batches(self, steps: range) -> Iterator[Iterator[Batch]]:
        """Gives the batches of consecutive steps; threads end with the block."""
        foreign = any(isinstance(transform, ForeignTransform) for transform in self.transforms)
        threads = 0 if foreign else self.threads
        with read_ahead(self.read, steps, threads=threads, buffered=2 * threads) as batches:
            yield batches


def input_size(source: Source, transforms: Sequence[Transform]) -> tuple[int, ...]:
    """Returns the channels and the extents of a sample of a source once it is transformed."""
    return tuple(Loader(source, Order(len(source), 1), transforms).read(0).images.shape[1:])


def _stack(images: Sequence[Image]) -> Tensor:
    if len({image.shape for image in images}) > 1:
        sizes = ", ".join(sorted({"×".join(map(str, image.shape)) for image in images}))
        raise DataError(f"the images of a batch have different sizes ({sizes}); end the transforms with a crop")
    return torch.from_numpy(np.stack(images)).movedim(-1, 1)
