"""Permutes the output channels of a convolution, and with them all that reads them: the network computes the same.

What is permuted comes from the graph (``channel_reach``). That it is all, is checked: the network is run before and
after. Equal outputs prove nothing where outputs do not depend on the order, so there is a control: with the channels
permuted and what reads them left alone, the outputs must change, and by far more than rounding.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from cruciform.compression.fitting.measured_rise import Probe
from cruciform.compression.fitting.sensitivity import output_tensors
from cruciform.errors import ConversionError
from cruciform.measure.state_guard import in_mode

SAME = 1e-3
"""The largest difference of outputs that is taken for rounding, as a fraction of the control's."""


class ChannelAxis(NamedTuple):
    """An axis of a parameter or buffer that is in the order of some channels.

    Attributes:
        tensor: Its name.
        axis: Which.
        block: How many values in sequence each channel is.
    """

    tensor: str
    axis: int
    block: int


@dataclass(frozen=True)
class ChannelReach:
    """All that is in the order of a convolution's output channels.

    Attributes:
        own: The filters and biases of the convolution.
        others: What reads its outputs, and what is done to them on the way.
    """

    own: tuple[ChannelAxis, ...]
    others: tuple[ChannelAxis, ...]


def permute_channels_(model: nn.Module, reach: ChannelReach, order: Sequence[int], probes: Sequence[Probe]) -> str:
    """Permute the output channels of a convolution in place; return why not, and nothing where it is done.

    Args:
        model: The network. Where its outputs would change, it stays what it is.
        reach: Of the convolution.
        order: For each new channel the number of the old one.
        probes: What the network is run on, and its outputs.
    """
    channels = model.state_dict()[reach.own[0].tensor].shape[reach.own[0].axis]
    if sorted(order) != list(range(channels)):
        raise ConversionError(f"{list(order)!r:.80} is not an order of {channels} channels; name each of them once")
    index = torch.tensor(list(order))
    before = {one.tensor: model.state_dict()[one.tensor].detach().clone() for one in (*reach.own, *reach.others)}
    try:
        _permute_(model, reach.own, index)
        control = _difference(model, probes)
        _permute_(model, reach.others, index)
        found = _difference(model, probes)
    except BaseException:
        _put_back_(model, before)
        raise
    if control > 0 and found <= SAME * control:
        return ""
    _put_back_(model, before)
    if control > 0:
        return f"the outputs of the network would differ by {found:.2g}, and by {control:.2g} in the control"
    return "the outputs of the network do not depend on them"


@torch.no_grad()
def _permute_(model: nn.Module, axes: Iterable[ChannelAxis], index: Tensor) -> None:
    state = model.state_dict()
    for name, axis, block in axes:
        tensor = state[name]
        values = (index[:, None] * block + torch.arange(block)).flatten().to(tensor.device)
        tensor.copy_(tensor.index_select(axis, values))


@torch.no_grad()
def _put_back_(model: nn.Module, before: dict[str, Tensor]) -> None:
    state = model.state_dict()
    for name, tensor in before.items():
        state[name].copy_(tensor)


@torch.no_grad()
def _difference(model: nn.Module, probes: Sequence[Probe]) -> float:
    """Return the largest difference of outputs to those of the probes; NaN where there is one."""
    with in_mode(model, training=False):
        differences = [
            (after - before).abs().max().double().cpu()
            for images, outputs in probes
            for before, after in zip(outputs, output_tensors(model(images)), strict=True)
        ]
    return float(torch.stack(differences).max()) if differences else 0.0
