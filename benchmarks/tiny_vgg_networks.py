"""The networks of ``tiny_vgg.py``: the paper's, and the dense one narrowed to the MACs of two of them.

All are trained by one recipe, ``vgg11_tiny``, which was chosen for the dense network alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import torch

from cruciform.measure.macs import profile
from cruciform.models.model_card import published_rows
from cruciform.models.zoo import create_model
from cruciform.training.experiments.race import Contestant
from cruciform.training.recipe.cookbook import load_recipe
from cruciform.training.recipe.recipe import Recipe

RECIPE, CLASSES = "vgg11_tiny", 100
DENSE, LOW_RANK, WFULL = "vgg11_gmp", "vgg11_gmp_lr", "vgg11_gmp_lr_join_wfull"
TWICE = "vgg11_gmp_lr_2x"
PAPERS = (DENSE, "vgg11_gmp_sf", LOW_RANK, TWICE, "vgg11_gmp_lr_join", WFULL, "vgg11_gmp_lr_lde")
NARROW_LR, NARROW_WFULL = f"{DENSE}_narrow_lr", f"{DENSE}_narrow_wfull"
RIVALS = {NARROW_LR: LOW_RANK, NARROW_WFULL: WFULL}
"""The dense network made narrower, and the network whose MACs it then has."""

NETWORKS = (*PAPERS, *RIVALS)
FEWER = {"vgg11_gmp_sf": 2, "vgg11_gmp_lr_lde": 2}
"""Most seeds of the networks that no conclusion rests on."""

SAME_TIME = "_same_time"
"""The ending of rows that are trained for as long as the dense network, not for as many epochs."""

DIFFERENCES = {
    "lr_ahead_of_narrow": (LOW_RANK, NARROW_LR),
    "lr_ahead_of_dense": (LOW_RANK, DENSE),
    "wfull_ahead_of_narrow": (WFULL, NARROW_WFULL),
    "wfull_ahead_of_dense": (WFULL, DENSE),
    "lr_2x_ahead_of_dense": (TWICE, DENSE),
    "lr_join_ahead_of_lr": ("vgg11_gmp_lr_join", LOW_RANK),
}
"""The differences that the paper makes statements about, and those from the networks that it lacks."""


@dataclass(frozen=True)
class Row:
    """What is trained once for every seed.

    Attributes:
        name: Of the network, or of its row with equal training time.
        epochs: Of its training.
    """

    name: str
    epochs: int

    def contestant(self, changes: Sequence[str] = ()) -> Contestant:
        """Return its recipe: that of all others but for the network and the epochs, evaluated once, at the end."""
        own = [f"epochs={self.epochs}", f"evaluation.epochs={self.epochs}", "checkpoint.keep=1"]
        return Contestant(self.name, recipe_of(self.name.removesuffix(SAME_TIME), [*own, *changes]))


def recipe_of(network: str, changes: Sequence[str] = ()) -> Recipe:
    """Return the recipe of a network."""
    changes = [*changes, f"model.name={DENSE if network in RIVALS else network}"]
    if network in RIVALS:
        changes.append(f"model.options.width={narrow_width(RIVALS[network])}")
    return load_recipe(RECIPE, changes)


def published_accuracies() -> dict[str, float]:
    """Return the top-1 accuracy of the paper's networks on ILSVRC."""
    return {
        row.model: row.top1 for row in published_rows() if row.table == "vgg_ilsvrc" and row.model in PAPERS
    }  # fmt: skip


def count_macs(recipe: Recipe, **changes: float) -> int:
    """Return the MACs of a recipe's network for one image, with other options."""
    options = {"num_classes": CLASSES, **recipe.model.options, **changes}
    with torch.device("meta"):  # counting needs shapes only
        network = create_model(recipe.model.name, **options)
    return profile(network, network.config.input_shape).macs


@cache
def narrow_width(network: str) -> float:
    """Return the factor on the widths, in thousandths, by which the dense network has the MACs of another."""
    dense, target = recipe_of(DENSE), count_macs(recipe_of(network))
    low, high = 1, round(1000 * dense.model.options["width"])
    while high - low > 1:  # MACs increase with the factor
        middle = (low + high) // 2
        low, high = (middle, high) if count_macs(dense, width=middle / 1000) <= target else (low, middle)
    return min((low, high), key=lambda width: abs(count_macs(dense, width=width / 1000) - target)) / 1000


def table_rows(only: Sequence[str] = ()) -> list[Row]:
    """Return the rows with the epochs of the recipe."""
    epochs = recipe_of(DENSE).epochs
    return [Row(name, epochs) for name in NETWORKS if not only or name in only]


def same_time_rows(step_seconds: Mapping[str, float], only: Sequence[str] = ()) -> list[Row]:
    """Return the rows whose epochs take the time of the dense network's.

    Args:
        step_seconds: The measured seconds of a training step of every network.
        only: The networks; all but the dense one where empty.
    """
    epochs = recipe_of(DENSE).epochs
    return [
        Row(f"{name}{SAME_TIME}", max(1, round(epochs * step_seconds[DENSE] / step_seconds[name])))
        for name in NETWORKS
        if name != DENSE and name in step_seconds and (not only or name in only)
    ]
