"""Networks of other libraries with efficient layers in the place of their dense k×k convolutions."""

from torch import nn

from cruciform.conversion.eligible import PLAIN_ADAPTATION, adaptation_of, is_convolution, refusal, why_skip
from cruciform.conversion.surgery import find_modules, replace_modules_
from cruciform.errors import OptionError, PlanError
from cruciform.models.efficient_layers import EFFICIENT_LAYERS, find_layer
from cruciform.nn.composite import CompositeConv
from cruciform.nn.initialize import initialize_, suited_rule
from cruciform.nn.inspect import TORCH_CONVOLUTIONS, spec_of

CONVOLUTIONS_OPTION = "convolutions"
"""The option of every network of another library: which layers its dense k×k convolutions are."""


def replace_convolutions_(model: nn.Module, scheme: str) -> nn.Module:
    """Replace every dense k×k convolution of an untrained network by an efficient layer, in place.

    Convolutions of one tap, 1-D, grouped and depthwise ones stay as they are. New layers are initialized by the rule
    that suits the network.

    Args:
        model: The network.
        scheme: ``separable``, ``grouped:4`` or ``bottleneck:0.25``; with ``or full`` layers stay dense to which it does
            not apply, as the first one.
    """
    written = ", ".join(layer.example for _, layer in EFFICIENT_LAYERS.items())
    if not isinstance(scheme, str):
        raise OptionError(f"{CONVOLUTIONS_OPTION}={scheme!r:.80} must be a text: {written}")
    make, rule = find_layer(scheme), suited_rule(model)
    layers: dict[int, nn.Module] = {}
    for item in find_modules(model).values():
        conv = item.module
        if not is_convolution(conv) or why_skip(conv):
            continue
        objection = refusal(conv) or (adaptation_of(conv) is not PLAIN_ADAPTATION and f"it is a {type(conv).__name__}")
        if objection:
            raise OptionError(f"{item.name} can't be replaced by {scheme!r}: {objection}")
        try:
            layer = make(spec_of(conv))
        except PlanError as error:
            raise PlanError(f"{item.name}: {error}") from error
        if isinstance(layer, CompositeConv):
            raise OptionError(
                f"{CONVOLUTIONS_OPTION}={scheme!r} has a plan: convert the network, by model.scheme in a recipe or by "
                f"cruciform.convert. {CONVOLUTIONS_OPTION} takes {written}, and 'or full' after them"
            )
        if not isinstance(layer, TORCH_CONVOLUTIONS):
            layers[id(conv)] = initialize_(layer, rule).train(conv.training)
    if not layers:
        raise OptionError(f"{CONVOLUTIONS_OPTION}={scheme!r} replaces no convolution of {type(model).__name__}")
    return replace_modules_(model, layers)
