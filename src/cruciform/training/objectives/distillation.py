"""Distillation (Hinton et al., 2015): a network learns the class probabilities of another one, its teacher."""

from torch import Tensor


def distillation_losses(logits: Tensor, teacher: Tensor, temperature: float = 1.0) -> Tensor:
    """Return T² times the Kullback–Leibler divergence of the teacher's probabilities from a network's, per sample.

    T² keeps the size of gradients the same for all temperatures.

    Args:
        logits: Of the network, (samples, classes).
        teacher: Of the teacher, for the same inputs.
        temperature: T: both logits are divided by it. Teachers that were trained with label smoothing need a low one.
    """
    own = (logits.float() / temperature).log_softmax(1)
    wanted = (teacher.detach().float() / temperature).log_softmax(1)
    return temperature**2 * (wanted.exp() * (wanted - own)).sum(1)
