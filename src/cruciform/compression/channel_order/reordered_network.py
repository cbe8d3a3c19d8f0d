"""A copy of a network with the output channels of some convolutions in another order; it computes the same."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from cruciform.compression.channel_order.channel_reach import find_reaches
from cruciform.compression.channel_order.permutation import permute_channels_
from cruciform.compression.fitting.layer_moments import Batches
from cruciform.compression.fitting.measured_rise import take_probes
from cruciform.errors import first_line

PROBED = 4
"""Inputs that a permuted network is checked with."""

Orders = Mapping[str, Sequence[int]]
"""By convolution, for each new output channel the number of the old one."""


@dataclass(frozen=True)
class ReorderedNetwork:
    """A network that computes the same as another one.

    Attributes:
        model: A copy; the network itself where nothing was reordered.
        orders: Of the layers that were reordered.
        fixed: By name, why the order of other layers' channels can't be chosen.
    """

    model: nn.Module = field(repr=False)
    orders: Orders
    fixed: Mapping[str, str]


def reorder_network(model: nn.Module, orders: Orders, batches: Batches) -> ReorderedNetwork:
    """Reorder the output channels of convolutions in a copy of a network, each verified by running it.

    Args:
        model: The network, in evaluation mode.
        orders: Which, and how.
        batches: Calibration inputs; a few of them are used.
    """
    if not orders:
        return ReorderedNetwork(model, {}, {})
    try:
        own = copy.deepcopy(model)
    except Exception as error:  # it may raise anything; the conversion says what to do about it
        return ReorderedNetwork(model, {}, dict.fromkeys(orders, f"the network can't be copied: {first_line(error)}"))
    probes = take_probes(own, batches, PROBED)
    reaches, fixed = find_reaches(own, orders, tuple(probes[0].images.shape[1:]))
    done: dict[str, list[int]] = {}
    for name, reach in reaches.items():
        why_not = permute_channels_(own, reach, orders[name], probes)
        if why_not:
            fixed[name] = why_not
        else:
            done[name] = list(orders[name])
    return ReorderedNetwork(own if done else model, done, fixed)


def find_fixed_orders(model: nn.Module, names: Iterable[str], batches: Batches, *, seed: int = 0) -> dict[str, str]:
    """Return by name why the order of some convolutions' output channels can't be chosen.

    All the others are tried out, in a random order.

    Args:
        model: The network, in evaluation mode.
        names: Convolutions.
        batches: Calibration inputs; a few of them are used.
        seed: Of the orders.
    """
    generator = torch.Generator().manual_seed(seed)
    orders = {
        name: torch.randperm(model.get_parameter(f"{name}.weight").shape[0], generator=generator).tolist()
        for name in names
    }
    return dict(reorder_network(model, orders, batches).fixed)


def reorder_metrics(metrics: Mapping[str, Tensor], orders: Orders) -> dict[str, Tensor]:
    """Return G (``fitting.sensitivity``) of the layers that were reordered."""
    return {name: metrics[name][list(order)][:, list(order)] for name, order in orders.items()}
