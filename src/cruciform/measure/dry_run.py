"""Run a network on the meta device, without computing anything."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from cruciform.measure.trace import tensors_in

META = torch.device("meta")
Shapes = tuple[tuple[int, ...], ...]


def zero_input(model: nn.Module, input_size: Sequence[int], device: torch.device, *, batch: int = 1) -> Tensor:
    """Return a batch of zeros in the dtype of a network, with these channels and spatial sizes."""
    dtype = next((tensor.dtype for tensor in model.parameters() if tensor.is_floating_point()), torch.float32)
    return torch.zeros(batch, *input_size, device=device, dtype=dtype)


def call_with(model: nn.Module, state: dict[str, Tensor], x: Tensor) -> Any:
    """Run a network with the tensors of ``state_on`` in place of its own, and return its output."""
    # The fused kernels of attention are nothing that the dispatcher's counter knows; its plain form is.
    with sdpa_kernel(SDPBackend.MATH):
        # A module that stands in two places is named once: torch would exchange its tensors twice, and leave it so.
        return functional_call(model, state, (x,), tie_weights=False)


def state_on(model: nn.Module, device: torch.device) -> dict[str, Tensor]:
    """Return all tensors of all modules on another device, by the first name of each module; tied ones stay tied."""
    there: dict[int, Tensor] = {}
    state = {}
    for name, module in model.named_modules():
        own = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
        for key, tensor in own:
            # Detached: torch's counter follows tensors that require a gradient, and fails where none is recorded.
            # Buffers are copied: in training they change.
            there.setdefault(id(tensor), tensor.detach().to(device, copy=key in module._buffers))
            state[f"{name}.{key}" if name else key] = there[id(tensor)]
    return state


def shapes_of(output: Any) -> Shapes:
    """Return the shapes of all tensors that a network returned, without the batch."""
    return tuple(tuple(tensor.shape[1:]) for tensor in tensors_in(output))


def let_norms_run_on_one_input(model: nn.Module) -> None:
    """Put batch norms into evaluation mode: one pixel of one input has no variance, and their work is the same."""
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.eval()


@contextmanager
def same_random_numbers() -> Iterator[None]:
    """Restore the states of the random number generators after the block."""
    state = random.getstate()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(state)
