"""One setting for sizes, ``data.size``: the height and width of what the network sees.

It stands for three others, and is not stored itself, so that a recipe means the same written either way:

- ``data.short_side``, which images of any size are brought to before crops are taken: size / 0.875, as 256 is for 224;
- the ``size`` of every crop in ``augment`` and ``prepare``;
- ``model.options.input_size``, where a network of the zoo is built for another size by default.

What is given besides must agree with it, but for the short side, which may be any.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

from cruciform.data.open_dataset import OF_ONE_SIZE
from cruciform.data.transforms.transforms import Augmentation, CenterCrop, RandomCrop
from cruciform.errors import RecipeError

SIZE = "data.size"
RATIO = 0.875  # of a crop to the short side: 224 to 256, as the paper and torchvision have it
LISTS = ("augment", "prepare")
CROPS = frozenset(one.kind for one in get_args(Augmentation) if "size" in {field.name for field in fields(one)})
"""The kinds of transforms that have a size."""
BUILT = frozenset({"model", "model.options", "model.options.input_size"})
OTHERS = BUILT | {"data", "data.kind", "data.short_side", *LISTS}
"""Keys that say something of sizes themselves: whoever changes one of them means what he says."""


def fill_sizes(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a recipe, as plain data, with what ``data.size`` stands for in its place.

    Raises:
        RecipeError: It is no size, the data has no use for one, or something else in the recipe contradicts it.
    """
    filled, size = expand_size(recipe)
    return filled if size is None else {**filled, "model": _with_input_size(filled.get("model"), size)}


def expand_size(recipe: Mapping[str, Any]) -> tuple[dict[str, Any], int | None]:
    """Returns a recipe with its short side and crops filled in from ``data.size``, and that; None where it has none."""
    filled = dict(recipe)
    if not isinstance(filled.get("data"), Mapping) or filled["data"].get("size") is None:
        return filled, None
    table = dict(filled["data"])
    size = table.pop("size")
    if type(size) is not int or size < 1:
        raise RecipeError(f"{SIZE} is a number of pixels, 1 or more; not {size!r}")
    if table.get("kind") in OF_ONE_SIZE:
        raise RecipeError(f"{SIZE}={size} is for images of any size; those of {table['kind']} have one. Leave it out")
    if table.get("short_side") is None:
        table["short_side"] = round(size / RATIO)
    filled["data"] = table
    for name in LISTS:
        if isinstance(filled.get(name), list | tuple):  # of anything else the recipe's own check tells
            filled[name] = [_with_size(one, size, name) for one in filled[name]]
    if not any(map(_is_crop, filled.get("prepare") or ())):
        raise RecipeError(
            f"{SIZE}={size} needs a crop in prepare, or images that are evaluated have other sizes: "
            'prepare=[{kind="center-crop"}]'
        )
    return filled, size


def follow_changes_(recipe: dict[str, Any], changed: frozenset[str], before: int | None) -> None:
    """Makes a changed ``data.size`` replace the sizes of a recipe, but for those that were changed with it.

    Where none was changed, the one that the recipe had before is put back, for the network that it has now.

    Args:
        recipe: Plain data; the changes have been made.
        changed: The keys that were.
        before: What ``data.size`` was; None: it was not given.
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


def refuse_small_side(side: int | None, transforms: Mapping[str, Sequence[Augmentation]]) -> None:
    """Raises where a crop can't be cut out of any image, because the short side is smaller.

    Args:
        side: The short side; None: images are as they are.
        transforms: What is done to them, by the name of the list.
    """
    for name, crop in ((name, one) for name, each in transforms.items() for one in each):
        if not isinstance(crop, RandomCrop | CenterCrop) or side is None:  # one that is resized is cut out of any
            continue
        if crop.size > side + 2 * (crop.padding if isinstance(crop, RandomCrop) else 0):
            raise RecipeError(
                f"data.short_side={side} is too small for the {crop.kind} of {crop.size} in {name}. Set {SIZE}={side} "
                f"in its place, which sets the crops too, or data.short_side={crop.size} or more"
            )


def _value(one: Any, key: str) -> Any:
    """Returns a value of a transform, whether it is plain data or made already."""
    return one.get(key) if isinstance(one, Mapping) else getattr(one, key, None)


def _is_crop(one: Any) -> bool:
    return _value(one, "kind") in CROPS


def _with_size(one: Any, size: int, where: str) -> Any:
    if not _is_crop(one):
        return one
    if _value(one, "size") not in (None, size):
        raise RecipeError(
            f"{SIZE}={size}, but the {_value(one, 'kind')} in {where} has size={_value(one, 'size')}; leave one of "
            "them out"
        )
    return {**one, "size": size} if isinstance(one, Mapping) else one


def _without_size(one: Any) -> Any:
    return {key: value for key, value in one.items() if key != "size"} if _is_crop(one) else one


def _with_input_size(model: Any, size: int) -> Any:
    """Returns a recipe's table of a model, built for this size where that is not what it is built for anyway."""
    from cruciform.models.zoo import list_models, model_config
    from cruciform.sources.build_network import split_reference
    from cruciform.store.directory import CARD

    if not isinstance(model, Mapping) or not isinstance(model.get("name"), str) or model.get("given"):
        return model
    source, name = split_reference(model["name"])
    if source != "zoo" or name not in list_models() or (Path(name) / CARD).is_file():
        return model
    options = model.get("options") or {}
    if not isinstance(options, Mapping):
        return model
    built_for = options.get("input_size", model_config(name).input_size)
    if "input_size" in options and built_for != size:
        raise RecipeError(f"{SIZE}={size}, but model.options.input_size={built_for}; leave one of them out")
    return {**model, "options": {**options, "input_size": size}} if built_for != size else model
