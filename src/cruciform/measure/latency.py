"""How long each layer takes, as PyTorch runs it: one thread, processor time, the shortest of some rounds.

Times of layers within a network that runs as it is. An engine fuses and reorders, so its times are others: those are
measured by ``cruciform deploy``.
"""

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from cruciform.measure.undisturbed import in_mode
from cruciform.nn.inspect import plan_of

WARM_UP = 1


def time_layers(model: nn.Module, input_size: Sequence[int], *, rounds: int, batch: int = 1) -> dict[str, float]:
    """Returns the seconds of one run of every layer that has a plan: convolutions, basis filters, linear layers.

    Args:
        model: The network; it is not changed.
        input_size: Channels and spatial size of one input.
        rounds: How often to run it.
        batch: Inputs at a time.
    """
    layers = {module: name for name, module in model.named_modules() if plan_of(module) is not None}
    best: dict[str, float] = {}
    began: dict[nn.Module, float] = {}
    seen: dict[str, float] = {}

    def before(module: nn.Module, args: Any) -> None:
        began[module] = time.process_time()

    def after(module: nn.Module, args: Any, output: Any) -> None:
        name = layers[module]  # a layer that is called twice takes the sum
        seen[name] = seen.get(name, 0.0) + time.process_time() - began[module]

    handles = [module.register_forward_pre_hook(before) for module in layers]
    handles += [module.register_forward_hook(after) for module in layers]
    threads = torch.get_num_threads()
    like = next(model.parameters(), torch.zeros(0))
    x = torch.randn(batch, *input_size, generator=torch.Generator().manual_seed(0)).to(like)
    try:
        torch.set_num_threads(1)
        with in_mode(model, training=False), torch.inference_mode():
            for turn in range(WARM_UP + rounds):
                seen.clear()
                model(x)
                if turn >= WARM_UP:
                    best = {name: min(seconds, best.get(name, seconds)) for name, seconds in seen.items()}
    finally:
        torch.set_num_threads(threads)
        for handle in handles:
            handle.remove()
    return best
