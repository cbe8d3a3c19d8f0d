"""Collapse basis filters to dense convolutions, and expand dense convolutions, exactly."""

import copy

import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from cruciform.conversion.convert import FIT, Conversion, convert, mark_converted_
from cruciform.conversion.eligible import why_hooked
from cruciform.conversion.planning import SchemeChoice
from cruciform.conversion.surgery import find_modules, replace_modules_
from cruciform.errors import ConversionError, NotLinearError
from cruciform.nn.composite import CompositeConv
from cruciform.nn.forms import DenseKernel
from cruciform.nn.inspect import TRANSPOSED_CONVOLUTIONS, stage_parameters_of, torch_convolution
from cruciform.nn.transposed_convolutions import swap_channels
from cruciform.schemes import full

EXACT_RESIDUAL = 1e-5


def collapse(model: nn.Module) -> nn.Module:
    """Return a copy of a network in which every layer of basis filters is its exactly equivalent dense convolution.

    Raises:
        NotLinearError: A layer has none; the error names it and the reason.
        ConversionError: A layer has hooks, which would be lost.
    """
    model = copy.deepcopy(model)
    replacements: dict[int, nn.Module] = {}
    for item in find_modules(model).values():
        if isinstance(item.module, CompositeConv):
            if hooked := why_hooked(item.module):
                raise ConversionError(f"layer {item.name!r} can't be collapsed: {hooked}")
            try:
                dense = dense_layer(item.module)
            except NotLinearError as error:
                raise NotLinearError(f"layer {item.name!r}: {error}") from error
            if isinstance(dense, CompositeConv):
                mark_converted_(dense, dense.plan)
            elif is_parametrized(item.module):  # its base standardizes weights: these must not be loaded into it
                mark_converted_(dense, item.module.plan)
            replacements[id(item.module)] = dense
    return replace_modules_(model, replacements)


def expand(model: nn.Module, scheme: SchemeChoice) -> Conversion:
    """Return a copy of a network with its dense convolutions expanded into basis filters, exactly.

    Raises:
        ConversionError: A kernel is not one that the scheme can represent.
    """
    conversion = convert(model, scheme, init=FIT)
    inexact = [(row.names[0], row.residual) for row in conversion.report.layers if (row.residual or 0) > EXACT_RESIDUAL]
    if inexact:
        shown = ", ".join(f"{name} ({residual:.1e})" for name, residual in inexact[:5])
        raise ConversionError(
            f"{len(inexact)} kernels can't be represented exactly; relative residuals: {shown}. "
            "convert(model, scheme, init='fit') uses the best approximation"
        )
    return conversion


def dense_layer(layer: CompositeConv) -> nn.Module:
    """Return the equivalent dense convolution of a layer: torch's own where it supports the padding."""
    kernel = layer.dense_kernel()
    dense = _empty_conv(kernel)
    ((weight, bias),) = stage_parameters_of(dense)[0]
    with torch.no_grad():
        is_swapped = isinstance(dense, TRANSPOSED_CONVOLUTIONS)
        weight.copy_(swap_channels(kernel.weight, kernel.spec.groups) if is_swapped else kernel.weight)
        if bias is not None and kernel.bias is not None:
            bias.copy_(kernel.bias)
    biases = {name for stage in layer.parameter_names for _, name in stage}
    free = {name in biases for name, parameter in layer.named_parameters() if parameter.requires_grad}
    weight.requires_grad_(False in free)
    if bias is not None:
        bias.requires_grad_(True in free)
    return dense.train(layer.training)


def _empty_conv(kernel: DenseKernel) -> nn.Module:
    """Return an uninitialized convolution; made on the meta device, where nothing is drawn from torch's generator."""
    spec, device, dtype = kernel.spec, kernel.weight.device, kernel.weight.dtype
    if any(before != after for before, after in spec.padding):
        # Unequal padding on the two sides is nothing that torch's modules know; our own runs it as one kernel.
        return CompositeConv(full(spec), device="meta", dtype=dtype).to_empty(device=device)
    return torch_convolution(spec, device="meta", dtype=dtype).to_empty(device=device)
