"""The tiny surface between the loop and where it runs: who am I, how many are we, and how do we agree."""

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
    """A process among equals.

    Attributes:
        rank: Its number.
        world: How many there are.
        device: What it computes on.
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
        """Returns a module that computes the same and averages gradients over all processes."""

    @abstractmethod
    def without_averaging(self, wrapped: nn.Module) -> AbstractContextManager[None]:
        """Within it, gradients stay with their process: for all pieces of a step but the last."""

    @abstractmethod
    def sum(self, numbers: Tensor) -> Tensor:
        """Returns the sum over all processes."""

    @abstractmethod
    def most(self, *numbers: int) -> tuple[int, ...]:
        """Returns the largest of each number over all processes, so that all take the same decision."""

    @abstractmethod
    def share_(self, tensors: Iterable[Tensor]) -> None:
        """Gives all processes the leader's values."""

    @abstractmethod
    def gather(self, values: Sequence[Any]) -> list[Any]:
        """Returns the values of all processes, the leader's first: plain data, as JSON has it."""

    def wait(self) -> None:
        """Waits for all others to get here."""
        self.most(0)


class SingleProcess(Runtime):
    """One process."""

    def __init__(self, device: torch.device) -> None:
        self.rank, self.world, self.device = 0, 1, device

    def wrap(self, model: nn.Module) -> nn.Module:
        """Returns the model."""
        return model

    def without_averaging(self, wrapped: nn.Module) -> AbstractContextManager[None]:
        """Does nothing."""
        return nullcontext()

    def sum(self, numbers: Tensor) -> Tensor:
        """Returns the numbers."""
        return numbers

    def most(self, *numbers: int) -> tuple[int, ...]:
        """Returns the numbers."""
        return numbers

    def share_(self, tensors: Iterable[Tensor]) -> None:
        """Does nothing."""

    def gather(self, values: Sequence[Any]) -> list[Any]:
        """Returns the values."""
        return list(values)


_GROUPS: list[dist.ProcessGroup | None] = []
"""Every group that was worked in, until the process ends. Where the last to let go of one is a network's wrapper,
torch 2.13 hangs: it waits for gloo's threads while it holds Python's lock, and they may be waiting for that lock."""


class Distributed(Runtime):
    """One of several processes whose group torch.distributed has set up already."""

    def __init__(self, device: torch.device) -> None:
        _GROUPS.append(dist.group.WORLD)
        self.rank, self.world, self.device = dist.get_rank(), dist.get_world_size(), device

    def wrap(self, model: nn.Module) -> nn.Module:
        """Returns torch's own wrapper."""
        return DistributedDataParallel(
            model,
            device_ids=[self.device] if self.device.type == "cuda" else None,
            gradient_as_bucket_view=True,
        )

    def without_averaging(self, wrapped: nn.Module) -> AbstractContextManager[None]:
        """Uses the wrapper's own."""
        if not isinstance(wrapped, DistributedDataParallel):
            raise TypeError(f"{type(wrapped).__name__} was not wrapped by this runtime")
        context: AbstractContextManager[None] = wrapped.no_sync()
        return context

    def sum(self, numbers: Tensor) -> Tensor:
        """Sums over the group."""
        total = numbers.to(self.device, copy=True)
        dist.all_reduce(total)
        return total.to(numbers.device)

    def most(self, *numbers: int) -> tuple[int, ...]:
        """Takes the maximum over the group."""
        largest = torch.tensor(numbers, device=self.device)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        return tuple(int(number) for number in largest)

    def share_(self, tensors: Iterable[Tensor]) -> None:
        """Sends them from the first process to all others."""
        for tensor in tensors:
            value = tensor.contiguous()
            dist.broadcast(value, src=0)
            tensor.copy_(value)

    def gather(self, values: Sequence[Any]) -> list[Any]:
        """Sends them as text, for torch's own way would pickle them; spaces make all texts equally long."""
        text = json.dumps(list(values)).encode()
        (length,) = self.most(len(text))
        own = torch.tensor(list(text.ljust(length)), dtype=torch.uint8, device=self.device)
        texts = [torch.empty_like(own) for _ in range(self.world)]
        dist.all_gather(texts, own)
        return [value for one in texts for value in json.loads(bytes(one.tolist()))]


def pick_device(name: str = "auto") -> torch.device:
    """Returns the device of a name; ``auto`` is a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:  # torch asserts that it was built for a GPU
        raise OptionError(f"--device {name} can't be had: {first_line(error)}; auto, cpu, cuda or cuda:1") from error
