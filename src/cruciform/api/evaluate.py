"""``cruciform.evaluate``: the accuracy of a network on a test set."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

    from cruciform.networks.open_network import OpenedNetwork
    from cruciform.training.evaluate_run import EvaluationReport
    from cruciform.training.recipe.recipe import Recipe


def evaluate(
    network: "nn.Module | str | Path | OpenedNetwork",
    *,
    recipe: "str | Path | Recipe | None" = None,
    data: str | Path | None = None,
    changes: Sequence[str] = (),
    device: str = "auto",
    on_progress: Callable[[int, int], None] = lambda done, of: None,
) -> "EvaluationReport":
    """Evaluate a run, or any other network, on every sample of a test set.

    A run is evaluated on the test set of its own recipe. Any other network needs ``recipe`` or ``data``.

    Args:
        network: A run, whose newest checkpoint is evaluated, or whatever ``open_network`` takes, or a network.
        recipe: A recipe with the data and the preprocessing; its training settings are ignored.
        data: A data set, for networks whose preprocessing is known: CIFAR-10's binary version, a folder with
            ``val/CLASS/*.jpg``, shards in ``val``, or an .npz file of volumes.
        changes: Overrides of the recipe, as ``key=value``.
        device: ``cpu``, ``cuda``, or ``auto``: a GPU where there is one.
        on_progress: Called with the number of batches done, and of all.
    """
    from cruciform.errors import OptionError, RunError
    from cruciform.networks.open_network import resolve_network
    from cruciform.store.run_marker import is_run
    from cruciform.training.evaluate_run import evaluate_network, evaluate_run, recipe_for_data
    from cruciform.training.recipe.cookbook import load_recipe
    from cruciform.training.recipe.recipe import Recipe

    if isinstance(network, str | Path) and is_run(Path(network)):
        if recipe is not None or data is not None:
            raise RunError(
                f"{network} is a run, which is evaluated on the data of its own recipe; give no other recipe or data. "
                "For other data of the same kind, override data.path"
            )
        return evaluate_run(Path(network), changes=changes, device=device, on_progress=on_progress)
    opened = resolve_network(network)
    name = opened.reference
    if (recipe is None) == (data is None):
        raise OptionError(
            f"{name} is not a run; give either data (preprocessed as the network requires) or recipe (its data and "
            "preprocessing)"
        )
    if isinstance(recipe, Recipe):
        if changes:
            raise OptionError("changes are for recipes by name or file; change the recipe itself")
        made = recipe
    elif recipe is not None:
        made = load_recipe(recipe, changes)
    else:
        made = recipe_for_data(name, str(data), opened.preprocessing, changes)
    return evaluate_network(
        opened.model, made, name=name, classes=opened.classes, device=device, on_progress=on_progress
    )
