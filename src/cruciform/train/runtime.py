"""The tiny surface between the loop and where it runs: who am I, how many are we, and how do we agree."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


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

    def wait(self) -> None:
        """Waits for all others to get here."""
        self.most(0)


class Alone(Runtime):
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


_GROUPS: list[dist.ProcessGroup | None] = []
"""Every group that was worked in, until the process ends. Where the last to let go of one is a network's wrapper,
torch 2.13 hangs: it waits for gloo's threads while it holds Python's lock, and they may be waiting for that lock."""


class Together(Runtime):
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


def pick_device(name: str = "auto") -> torch.device:
    """Returns the device of a name; ``auto`` is a GPU where there is one."""
    if name != "auto":
        return torch.device(name)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
