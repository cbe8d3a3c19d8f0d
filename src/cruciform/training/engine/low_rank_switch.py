"""The switch of a run from its dense network to the low-rank one (``model.low_rank_after``): when, and from what.

The low-rank network starts from what the dense one has learned: each layer is fitted to the outputs of the convolution
that it replaces (``compression.warm_start``). The switch makes a state, as a checkpoint holds it, and the run takes it
up as it would that of a checkpoint: so a run that resumes after the switch computes what an unbroken one does.

It is fitted to the first training images, preprocessed as for evaluation (evenly spaced ones where they are sorted by
class), not to the next batches: these depend on nothing but the recipe, the loop's order of samples and its prefetching
are left alone, and it is the preprocessing that the running statistics of norms are evaluated with.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from cruciform.compression.warm_start.fitted_conversion import FittedConversion, check_can_be_fitted, convert_fitted
from cruciform.errors import RecipeError, RunError
from cruciform.models.network import Network
from cruciform.text.wording import plural
from cruciform.training.engine.freeze import Freeze
from cruciform.training.engine.learner import Learner
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.run.progress import Progress
from cruciform.training.runtime.runtime import Runtime

SWITCH_IMAGES = 1024
FOLLOWING = ("model", "ema", "slow")
"""Parts of a learner's state that hold a copy of each weight: all start from the fitted ones."""


@dataclass(frozen=True)
class LowRankSwitch:
    """When a network becomes low-rank, and by which scheme.

    Attributes:
        scheme: Of the low-rank layers.
        step: Steps that the dense network takes.
        batch_size: Images that a training step runs on at once, which therefore fit into memory.
    """

    scheme: str
    step: int
    batch_size: int

    def is_due(self, progress: Progress) -> bool:
        """Return whether the next step is the low-rank network's, and the network is still dense."""
        return progress.step >= self.step and not progress.switched

    def check(self, dense: nn.Module, low_rank: nn.Module, recipe: Recipe) -> str:
        """Return a notice of what will happen to a network; raise where it will fail, before it is trained.

        Args:
            dense: The network that is trained first.
            low_rank: What it becomes.
            recipe: Its patterns of parameter names must fit both.
        """
        try:
            recipe.optimizer.build(low_rank)
            Freeze(low_rank, recipe.freeze)
        except RecipeError as error:
            raise RecipeError(f"in the network after model.low_rank_after: {error}") from None
        report = check_can_be_fitted(dense, self.scheme, protect=_protected(dense))
        return (
            f"the network is dense for {plural(self.step, 'step')}, then {plural(report.replaced, 'convolution')} of "
            f"{len(report.layers)} will be converted by {self.scheme} and fitted to the dense outputs"
        )

    def fit(self, learner: Learner, images: Tensor) -> FittedConversion:
        """Return the low-rank network, fitted to what a learner's network computes; that one stays as it is."""
        learner.optimizer.zero_grad(set_to_none=True)  # networks are copied with their gradients
        return convert_fitted(
            learner.model,
            self.scheme,
            images.to(learner.runtime.device),
            batch_size=self.batch_size,
            protect=_protected(learner.model),
        )


def find_switch(recipe: Recipe, steps: int, runtime: Runtime) -> LowRankSwitch | None:
    """Return the switch of a recipe, or None where it has none; raise where it can't be made.

    Args:
        recipe: The recipe.
        steps: Of the run.
        runtime: The processes of the run.
    """
    fraction, scheme = recipe.model.low_rank_after, recipe.model.scheme
    if fraction is None or scheme is None:
        return None
    if runtime.world > 1:
        raise RunError(
            f"model.low_rank_after={fraction} is not available with {runtime.world} processes: each would fit the "
            "layers by itself, and they may differ in their last bits. Train in one process, or set "
            "model.low_rank_after=none"
        )
    step = math.ceil(fraction * steps)
    step -= (step - 1) / steps >= fraction  # rounding: it is the first step after which this fraction has passed
    if step >= steps:
        raise RecipeError(
            f"model.low_rank_after={fraction} leaves none of {plural(steps, 'step')} for the low-rank network; set it "
            f"to {math.floor(1000 * (steps - 1) / steps) / 1000:g} or less, or train for more epochs"
        )
    return LowRankSwitch(scheme, step, -(-recipe.batch_size // recipe.grad_accum_steps))


def low_rank_state(dense: Learner, fitted: nn.Module) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the state that the low-rank network is trained on from, as ``Learner.state`` returns it.

    The loss scale is kept, and the optimizer's state of parameters that have not changed, such as a norm's. That of new
    ones, and of those that were reordered, starts from zero; the EMA and the slow weights start from the new weights.

    Args:
        dense: The learner of the dense network.
        fitted: The low-rank network.
    """
    tensors, values = dense.state()
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in fitted.state_dict().items()}
    state = {f"{part}.{name}": tensor for part in FOLLOWING for name, tensor in weights.items()}
    new = {name: weights[name] for name, _ in fitted.named_parameters()}
    old = {name: tensors[f"model.{name}"] for name, _ in dense.model.named_parameters()}
    return {**state, **optimizer_state(tensors, old, new)}, {**values, "ema_updates": 0}


def optimizer_state(
    tensors: Mapping[str, Tensor], old: Mapping[str, Tensor], new: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return the optimizer's state of the new parameters: for each, what it holds for the old ones, kept or zero.

    Zero, not nothing: fused optimizers need a state of all parameters or of none. A state with an entry that is neither
    a number nor of a parameter's shape starts again as a whole.

    Args:
        tensors: The state of the dense learner.
        old: The parameters of its network.
        new: Those of the low-rank one.
    """
    unchanged = {name for name, tensor in new.items() if name in old and torch.equal(tensor, old[name])}
    kept: dict[str, Tensor] = {}
    examples: dict[str, Tensor] = {}
    for full_name, tensor in tensors.items():
        part, _, rest = full_name.partition(".")
        if part != "optimizer":
            continue
        key, _, name = rest.partition(".")
        if tensor.ndim and tensor.shape != old[name].shape:
            return {}
        examples[key] = tensor
        if name in unchanged:
            kept[full_name] = tensor
    zero = {
        f"optimizer.{key}.{name}": torch.zeros_like(tensor if example.ndim else example)
        for key, example in examples.items()
        for name, tensor in new.items()
        if name not in unchanged
    }
    return kept | zero


def describe(fitted: FittedConversion) -> dict[str, Any]:
    """Return what a switch did, for the log: layers with their errors, and those that stay dense with the reason."""
    report, fit = fitted.conversion.report, fitted.fit
    errors = [layer.relative_error for layer in fit.layers]
    return {
        "layers": [
            {"name": layer.name, "plan": layer.plan, "relative_error": layer.relative_error} for layer in fit.layers
        ],
        "mean_relative_error": sum(errors) / len(errors) if errors else None,
        "dense": {row.names[0]: row.reason for row in report.layers if row.plan is None},
        "fitted_to_weights": fit.skipped,
        "reordered": list(fitted.reordered),
        "fixed_order": dict(fitted.fixed),
        "params": [report.params_before, report.params_after],
        "macs": [report.macs_before, report.macs_after],
        "warnings": list(report.warnings),
    }


def summarize(figures: Mapping[str, Any]) -> str:
    """Return a notice of what ``describe`` returns."""
    error, (before, after) = figures["mean_relative_error"], figures["macs"]
    low_rank = len(figures["layers"]) + len(figures["fitted_to_weights"])
    fitted = "" if error is None else f", fitted to the dense outputs with a mean relative error of {error:.2%}"
    dense = [f"{name} stays dense: {reason}" for name, reason in figures["dense"].items()]
    weights = [f"{name}: {reason}" for name, reason in figures["fitted_to_weights"].items()]
    what = f"the network is low-rank from here: {plural(low_rank, 'layer')}{fitted}"
    macs = f"{before / 1e6:,.4g} → {after / 1e6:,.4g} million MACs"
    return "; ".join((what, macs, *dense, *weights, *figures["warnings"]))


def _protected(model: nn.Module) -> tuple[str, ...]:
    return model.fitted if isinstance(model, Network) else ()
