"""Initialize a whole network: layers of basis filters, convolutions and linear layers."""

from collections.abc import Mapping, Sequence
from itertools import chain

import torch
from torch import nn

from cruciform.errors import OptionError
from cruciform.nn.activations import gain_squared
from cruciform.nn.init_rules import DEFAULT_RULE, NORMED_RULE, RULES, Surroundings, initialize_layer_
from cruciform.nn.inspect import plan_of, refuse_unready, stage_parameters_of
from cruciform.registry import did_you_mean

AUTO = "auto"
"""Not a rule: the one that suits the network."""
NORMS = (
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
    nn.SyncBatchNorm,
    nn.InstanceNorm1d,
    nn.InstanceNorm2d,
    nn.InstanceNorm3d,
    nn.GroupNorm,
    nn.LayerNorm,
    nn.RMSNorm,
)
"""Layers that set the scale of what goes through them."""


def suited_rule(model: nn.Module) -> str:
    """Return the rule that a network learns fastest from.

    Without norms the width of the weights decides whether the gradient survives, which is what the paper's rule is for.
    With norms it survives any width, and wide weights only learn more slowly: a step changes their direction less.
    """
    return NORMED_RULE if any(isinstance(module, NORMS) for module in model.modules()) else DEFAULT_RULE


def rule_for(model: nn.Module, rule: str, *, besides: Sequence[str] = ()) -> str:
    """Return the name of a rule, with ``auto`` replaced by the one that suits the network.

    Args:
        model: The network.
        rule: What was asked for.
        besides: Words which the caller takes in the place of a rule, for the message.
    """
    chosen = suited_rule(model) if rule == AUTO else rule
    RULES.get(chosen, besides=(AUTO, *besides))
    return chosen


def initialize_(
    model: nn.Module,
    rule: str = AUTO,
    *,
    activation: str | None = "relu",
    exceptions: Mapping[str, str | None] | None = None,
    siblings: Sequence[Sequence[str]] = (),
    generator: torch.Generator | None = None,
) -> nn.Module:
    """Initialize every convolution and linear layer of a network in place; transposed convolutions stay as they are.

    The same generator seed gives the same weights on every device: numbers are drawn on the generator's device,
    the CPU unless you made it elsewhere, and moved.

    Args:
        model: The network, or one layer of it.
        rule: ``paper-completed``, ``paper-literal``, ``per-group``, ``pytorch``, ``identity`` or ``paper-identity``;
            ``auto`` is ``pytorch`` where the network has norms and ``paper-completed`` where it has none.
        activation: The non-linearity after the layers, by name; None for none.
        exceptions: Layers, by name, that another one follows: ``{"classifier": None}``.
        siblings: Sets of layers, by name, that read the same input, as the branches of an inception module do.
            They are one composite layer to the paper's rules, and share their fan-out.
        generator: The source of the weights; torch's default one where left out.

    Returns:
        The model itself.
    """
    # Unknown names are refused also where no layer asks for them.
    rule, others = rule_for(model, rule), exceptions or {}
    for name in (activation, *others.values()):
        gain_squared(name)
    refuse_unready(model)
    plans = {name: plan for name, module in model.named_modules() if (plan := plan_of(module)) is not None}
    for name in (*others, *chain.from_iterable(siblings)):
        if name not in plans:
            raise OptionError(f"no convolution or linear layer is named {name!r}.{did_you_mean(name, list(plans))}")
    fan_outs = {
        name: sum(plans[sibling].fan_out(0) for sibling in together) for together in siblings for name in together
    }
    for name, plan in plans.items():
        initialize_layer_(
            plan,
            stage_parameters_of(model.get_submodule(name)),
            rule=rule,
            around=Surroundings(others.get(name, activation), fan_outs.get(name)),
            generator=generator,
        )
    return model
