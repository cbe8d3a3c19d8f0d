"""The interface between the loop and the processes of a run: rank, world size, collectives."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from cruciform.errors import OptionError, first_line


class Runtime(ABC):
    """One process of a run.

    Attributes:
        rank: Its rank.
        world: Number of processes.
        device: Its device.
    """

    rank: int
    world: int
    device: torch.device

    @property
    def leads(self) -> bool:
        """Whether this is the process that writes files."""
        return self.rank == 0

    @abstractmethod
    def wrap(self, model: nn.Module) -> nn.Module:
        """Return a module that computes the same and averages gradients over all processes."""

    @abstractmethod
    def without_averaging(self, wrapped: nn.Module) -> AbstractContextManager[None]:
        """Return a context without gradient averaging, for all parts of a step but the last."""

    @abstractmethod
    def sum(self, numbers: Tensor) -> Tensor:
        """Return the sum over all processes."""

    @abstractmethod
    def most(self, *numbers: int) -> tuple[int, ...]:
        """Return the maximum of each number over all processes, so that all take the same decision."""

    @abstractmethod
    def share_(self, tensors: Iterable[Tensor]) -> None:
        """Broadcast the leader's values to all processes."""

    @abstractmethod
    def gather(self, values: Sequence[Any]) -> list[Any]:
        """Return the values of all processes, the leader's first; plain data, as in JSON."""

    def wait(self) -> None:
        """Wait for all other processes."""
        self.most(0)


class SingleProcess(Runtime):
    """One process."""

    def __init__(self, device: torch.device) -> None:
        self.rank, self.world, self.device = 0, 1, device

    def wrap(self, model: nn.Module) -> nn.Module:
        """Return the model."""
        return model

    def without_averaging(self, wrapped: nn.Module) -> AbstractContextManager[None]:
        """Do nothing."""
        return nullcontext()

    def sum(self, numbers: Tensor) -> Tensor:
        """Return the numbers."""
        return numbers

    def most(self, *numbers: int) -> tuple[int, ...]:
        """Return the numbers."""
        return numbers

    def share_(self, tensors: Iterable[Tensor]) -> None:
        """Do nothing."""

    def gather(self, values: Sequence[Any]) -> list[Any]:
        """Return the values."""
        return list(values)


_GROUPS: list[dist.ProcessGroup | None] = []
"""References to all process groups until the process ends. If a network's wrapper drops the last one, torch 2.13
deadlocks: it joins gloo's threads while it holds the GIL, which they may be waiting for."""


class Distributed(Runtime):
    """One of several processes with an initialized torch.distributed group."""

    def __init__(self, device: torch.device) -> None:
        _GROUPS.append(dist.group.WORLD)
        self.rank, self.world, self.device = dist.get_rank(), dist.get_world_size(), device

    def wrap(self, model: nn.Module) -> nn.Module:
        """Return ``DistributedDataParallel``."""
        return DistributedDataParallel(
            model,
            device_ids=[self.device] if self.device.type == "cuda" else None,
            gradient_as_bucket_view=True,
        )

    def without_averaging(self, wrapped: nn.Module) -> AbstractContextManager[None]:
        """Return the wrapper's ``no_sync``."""
        if not isinstance(wrapped, DistributedDataParallel):
            raise TypeError(f"{type(wrapped).__name__} was not wrapped by this runtime")
        context: AbstractContextManager[None] = wrapped.no_sync()
        return context

    def sum(self, numbers: Tensor) -> Tensor:
        """Sum over the group."""
        total = numbers.to(self.device, copy=True)
        dist.all_reduce(total)
        return total.to(numbers.device)

    def most(self, *numbers: int) -> tuple[int, ...]:
        """Take the maximum over the group."""
        largest = torch.tensor(numbers, device=self.device)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        return tuple(int(number) for number in largest)

    def share_(self, tensors: Iterable[Tensor]) -> None:
        """Broadcast from rank 0."""
        for tensor in tensors:
            value = tensor.contiguous()
            dist.broadcast(value, src=0)
            tensor.copy_(value)

    def gather(self, values: Sequence[Any]) -> list[Any]:
        """Gather as JSON text, since torch would pickle; padded with spaces to equal length."""
        text = json.dumps(list(values)).encode()
        (length,) = self.most(len(text))
        own = torch.tensor(list(text.ljust(length)), dtype=torch.uint8, device=self.device)
        texts = [torch.empty_like(own) for _ in range(self.world)]
        dist.all_gather(texts, own)
        return [value for one in texts for value in json.loads(bytes(one.tolist()))]


def pick_device(name: str = "auto") -> torch.device:
    """Return a device by name; ``auto`` is a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:  # torch asserts that it was built for a GPU
        raise OptionError(
            f"the device {name!r} is not available: {first_line(error)}. Use auto, cpu, cuda or cuda:1"
        ) from error
