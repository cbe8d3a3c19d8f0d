"""The equal forms of low-rank layers, and networks built with a chosen form for each."""

import copy
from collections.abc import Mapping
from typing import Literal

from torch import nn
from torch.fx import GraphModule

from cruciform.conversion.dense import dense_layer
from cruciform.conversion.surgery import find_modules, replace_modules_
from cruciform.deployment.rewrites.capture import capture
from cruciform.deployment.rewrites.concatenation import Rewrite, rewrite_
from cruciform.errors import ConversionError, DeployError, NotLinearError
from cruciform.nn.composite import CompositeConv
from cruciform.registry import did_you_mean

Form = Literal["concat", "tail", "split", "dense"]
FORMS: tuple[Form, ...] = ("concat", "tail", "split", "dense")
"""concat, tail, split: see ``cruciform.deployment.rewrites.concatenation``; dense: the one equal kernel, if any."""


def composite_layers(model: nn.Module) -> dict[str, CompositeConv]:
    """Return the low-rank layers by name."""
    return {item.name: item.module for item in find_modules(model).values() if isinstance(item.module, CompositeConv)}


def refuse_converted(model: nn.Module, name: str) -> None:
    """Raise where a network is converted already: what starts from dense layers would start from the wrong ones."""
    if layers := composite_layers(model):
        raise ConversionError(
            f"{name} is converted already: {len(layers)} of its layers are made of basis filters. Start from the dense "
            "network that it was made from"
        )


def forms_of_layers(model: nn.Module, forms: Mapping[str, Form]) -> dict[str, Form]:
    """Translate forms by the names of replaced convolutions into forms by the names of layers.

    A convolution whose padding depends on its input size became two modules; the layer is the second.
    """
    return {
        layer: form for layer in composite_layers(model) for name, form in forms.items()
        if f"{layer}.".startswith(f"{name}.")
    }  # fmt: skip


def why_not_dense(layer: CompositeConv) -> str | None:
    """Return why a layer has no equal dense kernel, or None where it has one."""
    try:
        layer.dense_kernel()
    except NotLinearError as error:
        return str(error)
    return None


def build_form(
    model: nn.Module, forms: Mapping[str, Form], input_size: tuple[int, ...], *, batch: int = 2
) -> GraphModule:
    """Return the graph of a network with its layers in the given forms.

    Args:
        model: The network; it is not changed.
        forms: The form of layers by name; others are ``concat``.
        input_size: Channels and spatial size of one image.
        batch: The batch size to trace with.
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
