"""How long each layer takes, as PyTorch runs it: one thread, processor time, the shortest of some rounds.

Times of layers within a network that runs as it is, and of the dense convolution that each layer of basis filters
stands in for, on the same inputs. An engine fuses and reorders, so its times are others: those are measured by
``cruciform deploy``.
"""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from cruciform.measure.state_guard import in_mode
from cruciform.nn.composite import CompositeConv
from cruciform.nn.inspect import plan_of
from cruciform.schemes import full

WARM_UP_ROUNDS = 1


class LayerSeconds(NamedTuple):
    """Seconds of one run of a layer.

    Attributes:
        own: Of the layer as it is.
        dense: Of the dense convolution in its place; None where the layer stands in for none.
    """

    own: float
    dense: float | None


def time_layers(
    model: nn.Module, input_size: Sequence[int], *, rounds: int, batch: int = 1
) -> dict[str, LayerSeconds]:  # fmt: skip
    """Return the seconds of every layer that has a plan: convolutions, basis filters, linear layers.

    Dense stand-ins run in passes of their own, interleaved with the others, so that they do not slow down the next
    layer of the network while that is timed.

    Args:
        model: The network; it is not changed.
        input_size: Channels and spatial size of one input.
        rounds: How often to run it.
        batch: Inputs at a time.
    """
    layers = {module: name for name, module in model.named_modules() if plan_of(module) is not None}
    dense = {module: made for module in layers if (made := _dense_stand_in(module)) is not None}
    best: dict[nn.Module, float] = {}
    began: dict[nn.Module, float] = {}
    seen: dict[nn.Module, float] = {}
    timed: set[nn.Module] = set()  # what a pass is about: the layers of the network; none of them: their stand-ins

    def add(module: nn.Module, seconds: float) -> None:
        seen[module] = seen.get(module, 0.0) + seconds  # a layer that is called twice takes the sum

    def before(module: nn.Module, args: Any) -> None:
        began[module] = time.process_time()

    def after(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if module in timed:
            add(module, time.process_time() - began[module])
        elif module in dense:
            start = time.process_time()
            dense[module](*args, **kwargs)
            add(dense[module], time.process_time() - start)

    handles = [module.register_forward_pre_hook(before) for module in layers]
    handles += [module.register_forward_hook(after, with_kwargs=True) for module in layers]
    threads = torch.get_num_threads()
    like = next(model.parameters(), torch.zeros(0))
    x = torch.randn(batch, *input_size, generator=torch.Generator().manual_seed(0)).to(like)
    passes = [list(layers), *([[]] if dense else [])]
    try:
        torch.set_num_threads(1)
        with in_mode(model, training=False), torch.inference_mode():
            for turn in range(WARM_UP_ROUNDS + rounds):
                seen.clear()
                for chosen in passes:
                    timed.clear()
                    timed.update(chosen)
                    model(x)
                if turn >= WARM_UP_ROUNDS:
                    best |= {module: min(seconds, best.get(module, seconds)) for module, seconds in seen.items()}
    finally:
        torch.set_num_threads(threads)
        for handle in handles:
            handle.remove()
    return {
        name: LayerSeconds(best[module], best[dense[module]] if module in dense else None)
        for module, name in layers.items()
        if module in best
    }


def _dense_stand_in(layer: nn.Module) -> nn.Module | None:
    """Return a dense convolution with the geometry of a layer of basis filters; None for other layers."""
    if not isinstance(layer, CompositeConv) or layer.plan.is_dense or is_parametrized(layer):
        return None
    like = next(layer.parameters())
    generator = torch.Generator().manual_seed(0)  # or the caller's random numbers would be others
    return CompositeConv(full(layer.plan.spec), device=like.device, dtype=like.dtype, generator=generator).eval()
