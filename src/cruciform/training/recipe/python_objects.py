"""What the caller's code gives to a run. A recipe, being data, can't hold it; it names it, so that all can tell."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from cruciform.errors import RecipeError, RunError
from cruciform.training.recipe.recipe import Recipe


@dataclass(frozen=True)
class PythonObjects:
    """What a recipe can't hold.

    Attributes:
        model: The network, where only the caller's code can build it.
        transform: One more transform of training samples: any function of an image, as torchvision, timm and
            albumentations have them.
        start: A checkpoint to start from where the run has none that is newer.
    """

    model: nn.Module | None = None
    transform: Any = None
    start: Path | None = None


def name_given(recipe: Recipe, inputs: PythonObjects) -> Recipe:
    """Returns the recipe with the names of what is given; refuses one that needs what is not given."""
    for table, argument, thing in (
        (recipe.model, "model", inputs.model),
        (recipe.data, "transform", inputs.transform),
    ):
        if table.given and thing is None:
            raise RunError(
                f"this run was started from Python with a {argument} of its own ({table.given}) and goes on from there "
                f"only: train_network(RUN, RUN, {argument}=...)"
            )
    if inputs.model is not None and (recipe.model.scheme or recipe.model.init):
        raise RecipeError(
            f"a network of one's own is trained as it is, so the recipe's model.scheme={recipe.model.scheme} and "
            f"model.init={recipe.model.init} have no effect; convert it before, and set both to none"
        )
    model = recipe.model.model_copy(update={"given": _name(inputs.model)})
    data = recipe.data.model_copy(update={"given": _name(inputs.transform)})
    return recipe.model_copy(update={"model": model, "data": data})


def _name(thing: Any) -> str | None:
    """Returns the name of a function, or of what something is; that of its module changes with how it is started."""
    return None if thing is None else getattr(thing, "__qualname__", type(thing).__qualname__)
