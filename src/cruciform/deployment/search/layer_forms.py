"""The forms that each layer of basis filters can take, and a network built with one chosen for each: always equal."""

import copy
from collections.abc import Mapping
from typing import Literal

from torch import nn
from torch.fx import GraphModule

from cruciform.conversion.dense import dense_layer
from cruciform.conversion.surgery import find_modules, replace_modules_
from cruciform.deployment.rewrites.capture import capture
from cruciform.deployment.rewrites.concatenation import Rewrite, rewrite_
from cruciform.errors import DeployError, NotLinearError
from cruciform.nn.composite import CompositeConv
from cruciform.registry import did_you_mean

Form = Literal["concat", "tail", "split", "dense"]
FORMS: tuple[Form, ...] = ("concat", "tail", "split", "dense")
"""concat, tail, split: see ``cruciform.deployment.rewrites.concatenation``; dense: the one equal kernel, if any."""


def composite_layers(model: nn.Module) -> dict[str, CompositeConv]:
    """Returns the layers of basis filters, by the first of their names."""
    return {item.name: item.module for item in find_modules(model).values() if isinstance(item.module, CompositeConv)}


def forms_of_layers(model: nn.Module, forms: Mapping[str, Form]) -> dict[str, Form]:
    """Returns forms by the names of layers, from those by the names of the convolutions that they replaced.

    A convolution that pads by the size of its input became two modules: the layer is the second.
    """
    return {
        layer: form for layer in composite_layers(model) for name, form in forms.items()
        if f"{layer}.".startswith(f"{name}.")
    }  # fmt: skip


def why_not_dense(layer: CompositeConv) -> str | None:
    """Returns why a layer has no equal dense kernel; None where it has one."""
    try:
        layer.dense_kernel()
    except NotLinearError as error:
        return str(error)
    return None


def build_form(
    model: nn.Module, forms: Mapping[str, Form], input_size: tuple[int, ...], *, batch: int = 2
) -> GraphModule:
    """Returns a graph that computes what a network does, with each of its layers in the form that is asked for.

    Args:
        model: The network, which is left as it is.
        forms: A form for layers by name; others are ``concat``.
        input_size: Of one image.
        batch: Images at a time.
    """
    model = copy.deepcopy(model)
    layers = composite_layers(model)
    for name in forms:
        if name not in layers:
            raise DeployError(f"no low-rank layer is called {name!r}.{did_you_mean(name, list(layers))}")
    dense = {id(layers[name]): dense_layer(layers[name]) for name, form in forms.items() if form == "dense"}
    graph = capture(replace_modules_(model, dense), input_size, batch=batch)
    rewrites: dict[str, Rewrite] = {name: form for name, form in forms.items() if form != "dense"}
    return rewrite_(graph, rewrites)
