"""``cruciform.diagnose``: whether a network can be trained from its initial weights."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor, nn

    from cruciform.measure.gradients import Diagnosis
    from cruciform.networks.open_network import OpenedNetwork


def diagnose(
    model: "nn.Module | OpenedNetwork | str | Path",
    inputs: "Tensor | Sequence[int] | None" = None,
    *,
    batch: int = 4,
    seed: int = 0,
    trained: bool | None = None,
) -> "Diagnosis":
    """Measure whether gradients survive backpropagation through a network.

    The network is run in training mode; its parameters, buffers, gradients and mode are left as they were.

    Args:
        model: An ``nn.Module`` with convolutions, a reference (``timm:resnet18``, a run, a model directory), or what
            ``open_network`` returns.
        inputs: A batch of images, or channels and spatial size of one input for standard normal noise. Left out for a
            reference: noise of its usual input size.
        batch: Batch size of the noise.
        seed: Seed of the noise, and of the initial weights of a network by reference.
        trained: Whether the weights are trained: then there is no verdict. None: what the reference knows; of a module,
            whether a batch norm has seen batches.

    Raises:
        DiagnosisError: The network has fewer than two convolutions in a row, or its output has no gradient.
    """
    import torch

    from cruciform.measure.gradients import diagnose as diagnose_module
    from cruciform.networks.open_network import resolve_network

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        opened = resolve_network(model)
    known = opened.trained if trained is None else trained
    chosen = opened.needed_input_size if inputs is None else inputs
    return diagnose_module(opened.model, chosen, batch=batch, seed=seed, trained=known)
