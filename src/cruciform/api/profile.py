"""``cruciform.profile``: parameters and MACs of a network, per layer."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

    from cruciform.measure.network_profile import Profile
    from cruciform.networks.open_network import OpenedNetwork


def profile(
    model: "nn.Module | OpenedNetwork | str | Path",
    input_size: Sequence[int] | None = None,
    *,
    training: bool = False,
) -> "Profile":
    """Count parameters and MACs per layer, in two independent ways that must agree.

    Args:
        model: An ``nn.Module``, a reference (``timm:resnet18``, a run, a model directory), or what ``open_network``
            returns. It is not changed.
        input_size: Channels and spatial size of one input: ``(3, 224, 224)``. Left out for a reference: its usual one.
        training: Count it as in training, auxiliary heads included, rather than as deployed.

    Raises:
        CountError: The two counts disagree.
        ShapeError: The network does not take such an input.
    """
    from torch import nn

    from cruciform.measure.macs import profile as profile_module
    from cruciform.networks.open_network import open_network, resolve_network

    if isinstance(model, nn.Module) and input_size is not None:
        return profile_module(model, input_size, training=training)
    opened = open_network(model, on_meta=True) if isinstance(model, str | Path) else resolve_network(model)
    return profile_module(opened.model, input_size or opened.needed_input_size, training=training)
