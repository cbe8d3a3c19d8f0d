"""Initialises a whole network, whatever its layers: ours, torch's convolutions and linear layers."""

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from cruciform.nn.init import DEFAULT_RULE, RULES, Surroundings, initialise_layer_
from cruciform.nn.inspect import plan_of, stage_parameters_of


def initialise_(
    model: nn.Module,
    rule: str = DEFAULT_RULE,
    *,
    activation: str | None = "relu",
    exceptions: Mapping[str, str | None] | None = None,
    siblings: Sequence[Sequence[str]] = (),
    generator: torch.Generator | None = None,
) -> nn.Module:
    """Initialises every convolution and linear layer of a network in place.

    The same generator seed gives the same weights on every device: numbers are drawn on the generator's device,
    the CPU unless you made it elsewhere, and moved.

    Args:
        model: The network, or one layer of it.
        rule: ``paper-completed``, ``paper-literal``, ``per-group``, ``pytorch``, ``identity`` or ``paper-identity``.
        activation: The non-linearity behind the layers, by name; None for none.
        exceptions: Layers, by name, that another one follows: ``{"classifier": None}``.
        siblings: Sets of layers, by name, that read the same input, as the branches of an inception module do.
            They are one composite layer to the paper's rules, and share their fan-out.
        generator: The source of the weights; torch's default one where left out.

    Returns:
        The model itself.
    """
    RULES.get(rule)  # an unknown rule is refused also where the model has no layer to initialise
    others = exceptions or {}
    plans = {name: plan for name, module in model.named_modules() if (plan := plan_of(module)) is not None}
    fan_outs = {
        name: sum(plans[sibling].fan_out(0) for sibling in together) for together in siblings for name in together
    }
    for name, plan in plans.items():
        initialise_layer_(
            plan,
            stage_parameters_of(model.get_submodule(name)),
            rule=rule,
            around=Surroundings(others.get(name, activation), fan_outs.get(name)),
            generator=generator,
        )
    return model
