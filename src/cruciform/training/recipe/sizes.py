"""One setting for sizes, ``data.size``: the height and width of the network's input.

It sets three others and is not stored itself, so that both ways of writing a recipe are equal:

- ``data.short_side``, which images are resized to before they are cropped: size / 0.875, as 256 for 224;
- the ``size`` of every crop in ``train_transforms`` and ``eval_transforms``;
- ``model.options.input_size``, where a zoo network is built for another size by default.

Sizes that are given too must agree with it, except for the short side, which may be any.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import takewhile
from pathlib import Path
from typing import Any, get_args

from cruciform.data.samples.source import DATASETS
from cruciform.data.transforms.transforms import CenterCrop, RandomCrop, RecipeTransform, Resize
from cruciform.errors import RecipeError

SIZE = "data.size"
RATIO = 0.875  # of a crop to the short side: 224 to 256, as in the paper and torchvision
LISTS = ("train_transforms", "eval_transforms")
CROPS = frozenset(one.kind for one in get_args(RecipeTransform) if "size" in {field.name for field in fields(one)})
"""The kinds of transforms that have a size."""
BUILT = frozenset({"model", "model.options", "model.options.input_size"})
OTHERS = BUILT | {"data", "data.kind", "data.short_side", *LISTS}
"""Keys that set sizes themselves: an override of one of them takes precedence."""


def fill_sizes(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe, as plain data, with ``data.size`` replaced by what it sets.

    Raises:
        RecipeError: It is not a size, the data set has a fixed size, or another key contradicts it.
    """
    filled, size = expand_size(recipe)
    return filled if size is None else {**filled, "model": _with_input_size(filled.get("model"), size)}


def expand_size(recipe: Mapping[str, Any]) -> tuple[dict[str, Any], int | None]:
    """Return a recipe with short side and crops set from ``data.size``, and that size; None where it has none."""
    filled = dict(recipe)
    if not isinstance(filled.get("data"), Mapping) or filled["data"].get("size") is None:
        return filled, None
    table = dict(filled["data"])
    size = table.pop("size")
    if type(size) is not int or size < 1:
        raise RecipeError(f"{SIZE} must be a number of pixels, 1 or more; not {size!r}")
    kind = table.get("kind")
    if isinstance(kind, str) and kind in DATASETS and DATASETS.get(kind).fixed_size:
        raise RecipeError(f"{SIZE}={size} can't be set: the images of {kind} have a fixed size. Leave it out")
    if table.get("short_side") is None:
        table["short_side"] = round(size / RATIO)
    filled["data"] = table
    for name in LISTS:
        if isinstance(filled.get(name), list | tuple):  # anything else is reported when the recipe is validated
            filled[name] = [_with_size(one, size, name) for one in filled[name]]
    if not any(map(_is_crop, filled.get("eval_transforms") or ())):
        raise RecipeError(
            f"{SIZE}={size} needs a crop in eval_transforms, or images of other sizes are evaluated: set "
            'eval_transforms=[{kind="center-crop"}]'
        )
    return filled, size


def follow_changes_(recipe: dict[str, Any], changed: frozenset[str], before: int | None) -> None:
    """Let an override of ``data.size`` replace the sizes of a recipe, except those that are overridden too.

    Where no size is overridden, the recipe's own is restored, for the network that it has now.

    Args:
        recipe: Plain data, with the overrides applied.
        changed: The keys that were overridden.
        before: The recipe's own ``data.size``; None: it has none.
    """
    table = recipe.get("data")
    if not isinstance(table, dict):
        return
    if table.get("size") is None:
        if before is not None and not changed & OTHERS:
            table["size"] = before
        return
    if not changed & {"data.short_side", "data"}:
        table.pop("short_side", None)
    for name in LISTS:
        if name not in changed and isinstance(recipe.get(name), list):
            recipe[name] = [_without_size(one) for one in recipe[name]]
    model = recipe.get("model")
    if not changed & BUILT and isinstance(model, dict):
        options = model.get("options")
        if isinstance(options, dict):
            options.pop("input_size", None)


def refuse_small_side(side: int | None, transforms: Mapping[str, Sequence[RecipeTransform]]) -> None:
    """Raise where a crop is larger than the short side of the images.

    Args:
        side: The short side; None: images keep their size.
        transforms: The transforms, by the name of the list.
    """
    unresized = {name: takewhile(lambda one: not isinstance(one, Resize), each) for name, each in transforms.items()}
    for name, crop in ((name, one) for name, each in unresized.items() for one in each):
        if not isinstance(crop, RandomCrop | CenterCrop) or side is None:  # random-resized-crop takes any size
            continue
        if crop.size > side + 2 * (crop.padding if isinstance(crop, RandomCrop) else 0):
            raise RecipeError(
                f"data.short_side={side} is too small for the {crop.kind} of {crop.size} in {name}. Set {SIZE}={side} "
                f"instead, which sets the crops too, or data.short_side={crop.size} or more"
            )


def _value(one: Any, key: str) -> Any:
    """Return a value of a transform, which may be plain data or an object."""
    return one.get(key) if isinstance(one, Mapping) else getattr(one, key, None)


def _is_crop(one: Any) -> bool:
    return _value(one, "kind") in CROPS


def _with_size(one: Any, size: int, where: str) -> Any:
    if not _is_crop(one):
        return one
    if _value(one, "size") not in (None, size):
        raise RecipeError(
            f"{SIZE}={size}, but the {_value(one, 'kind')} in {where} has size={_value(one, 'size')}; drop one of them"
        )
    return {**one, "size": size} if isinstance(one, Mapping) else one


def _without_size(one: Any) -> Any:
    return {key: value for key, value in one.items() if key != "size"} if _is_crop(one) else one


def _with_input_size(model: Any, size: int) -> Any:
    """Return the model table with ``options.input_size``, where the network is built for another size by default."""
    from cruciform.models.zoo import list_models, model_config
    from cruciform.sources.build_network import split_reference
    from cruciform.store.directory import CARD

    if not isinstance(model, Mapping) or not isinstance(model.get("name"), str) or model.get("python_object"):
        return model
    source, name = split_reference(model["name"])
    if source != "zoo" or name not in list_models() or (Path(name) / CARD).is_file():
        return model
    options = model.get("options") or {}
    if not isinstance(options, Mapping):
        return model
    built_for = options.get("input_size", model_config(name).input_size)
    if "input_size" in options and built_for != size:
        raise RecipeError(f"{SIZE}={size}, but model.options.input_size={built_for}; drop one of them")
    return {**model, "options": {**options, "input_size": size}} if built_for != size else model
