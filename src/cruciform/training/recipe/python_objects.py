"""Python objects that a run is given besides its recipe, which is data and can only name them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from cruciform.errors import RecipeError, RunError
from cruciform.nn.inspect import checksum
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.tables.distill_table import DistillTable


@dataclass(frozen=True)
class PythonObjects:
    """What a recipe can't hold.

    Attributes:
        model: The network, where the caller built it.
        teacher: The network to learn from, where the caller has it.
        transform: One more transform of training samples: any function of an image, as torchvision, timm and
            albumentations provide.
        start: A checkpoint to start from, unless the run has a newer one.
    """

    model: nn.Module | None = None
    teacher: nn.Module | None = None
    transform: Any = None
    start: Path | None = None


def name_objects(recipe: Recipe, objects: PythonObjects) -> Recipe:
    """Return the recipe with the names of the objects; raise where one that it names is missing."""
    for argument, name, thing in (
        ("model", recipe.model.python_object, objects.model),
        ("teacher", recipe.distill and recipe.distill.python_object, objects.teacher),
        ("transform", recipe.data.python_transform, objects.transform),
    ):
        if name and thing is None:
            raise RunError(
                f"this run was started from Python with its own {argument} ({name}) and can only be resumed from "
                f"Python: cruciform.{'distill' if argument == 'teacher' else 'train'}(RUN, RUN, {argument}=...)"
            )
    if objects.model is not None and (recipe.model.scheme or recipe.model.init):
        raise RecipeError(
            f"a network passed as model= is trained as it is, so model.scheme={recipe.model.scheme} and "
            f"model.init={recipe.model.init} of the recipe have no effect; convert it first, and set both to none"
        )
    model = recipe.model.model_copy(update={"python_object": _name(objects.model)})
    data = recipe.data.model_copy(update={"python_transform": _name(objects.transform)})
    return recipe.model_copy(update={"model": model, "data": data, "distill": _name_teacher(recipe, objects.teacher)})


def _name_teacher(recipe: Recipe, teacher: nn.Module | None) -> DistillTable | None:
    if teacher is None:
        return recipe.distill
    table = recipe.distill or DistillTable()
    if table.teacher is not None:
        raise RecipeError(f"the recipe has distill.teacher={table.teacher}, and teacher= was given too: leave out one")
    # Another teacher would be another run.
    return table.model_copy(update={"python_object": f"{_name(teacher)} {checksum(teacher.state_dict())[:16]}"})


def _name(thing: Any) -> str | None:
    """Return the name of a function, or of an object's class, without its module: that of a script varies."""
    return None if thing is None else getattr(thing, "__qualname__", type(thing).__qualname__)
