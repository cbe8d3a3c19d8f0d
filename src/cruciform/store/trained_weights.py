"""Whether a model directory has trained weights, or initial ones of a conversion."""

from pathlib import Path

from torch import Tensor, nn

from cruciform.conversion.convert import converted_plans
from cruciform.errors import DamagedError
from cruciform.files import read_json
from cruciform.measure.gradients import has_tracked_batches
from cruciform.nn.composite import CompositeConv
from cruciform.nn.init_rules import RULES, Surroundings
from cruciform.store.directory import REPORT

ROUNDING_MARGIN = 1.01  # weights may have been saved in bfloat16


def holds_trained_weights(directory: Path, model: nn.Module) -> bool:
    """Return whether the weights of a model directory are trained.

    They are, unless the report of the directory names the rule that its layers were drawn by; and even then where a
    batch norm has seen batches, or where a weight or bias is larger than the rule draws any.

    Args:
        directory: What ``save`` wrote.
        model: The network that was loaded from it.
    """
    try:
        report = read_json(directory / REPORT)
    except DamagedError:  # it is for people; a directory is whole without
        return True
    rule = report.get("init") if isinstance(report, dict) else None
    if not isinstance(rule, str) or rule not in RULES:  # written after a training, or fitted to trained weights
        return True
    layers = [model.get_submodule(name) for name in converted_plans(model)]
    return has_tracked_batches(model) or not all(_could_be_drawn(layer, rule) for layer in layers)


def _could_be_drawn(layer: nn.Module, rule: str) -> bool:
    """Return whether a rule can have drawn these parameters: biases, and weights where they are drawn uniformly."""
    if not isinstance(layer, CompositeConv):
        return True
    drawn = RULES.get(rule)(layer.plan, Surroundings())
    for draws, stage in zip(drawn, layer.stage_parameters(), strict=True):
        for draw, (weight, bias) in zip(draws, stage, strict=True):
            if bias is not None and _largest(bias) > draw.bias_scale * ROUNDING_MARGIN:
                return False
            if draw.shape == "uniform" and not draw.passed and _largest(weight) > draw.scale * ROUNDING_MARGIN:
                return False
    return True


def _largest(tensor: Tensor) -> float:
    return float(tensor.detach().abs().max()) if tensor.numel() else 0.0
