"""Recipes by name, from TOML files and from runs, with ``key=value`` overrides."""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from cruciform.errors import RecipeError
from cruciform.files import MOST_JSON, read_text
from cruciform.registry import Registry, did_you_mean
from cruciform.store.run_marker import RUN_RECIPE, is_run
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.recipe.renamed_keys import refuse_renamed
from cruciform.training.recipe.sizes import expand_size, follow_changes_, refuse_small_side
from cruciform.training.tables.table import read_table

BY_PATTERN = (["freeze"], ["optimizer", "lr_mult"], ["optimizer", "rates"])
"""The tables whose keys are patterns of parameter names, which contain dots."""


def load_recipe(reference: str | Path, changes: Sequence[str] = ()) -> Recipe:
    """Load a recipe by name, from a TOML file or from a run.

    Args:
        reference: A name of ``list_recipes()``, a TOML file, or the directory of a run.
        changes: Overrides, each as ``key=value`` with a TOML value, as ``optimizer.lr=0.05``.
    """
    recipe = make_recipe(_read(reference), changes, str(reference))
    if not is_run(Path(reference)):  # the recipe of a run is read as it is
        lists = {"train_transforms": recipe.train_transforms, "eval_transforms": recipe.eval_transforms}
        refuse_small_side(recipe.data.short_side, lists)
    return recipe


def names_recipe(reference: str | Path) -> bool:
    """Return whether a reference is one that ``load_recipe`` takes, and not, say, a folder of images."""
    path = Path(reference)
    return is_run(path) or path.suffix == ".toml" or str(reference) in list_recipes()


def make_recipe(data: dict[str, Any], changes: Sequence[str], what: str) -> Recipe:
    """Return a recipe from plain data, with overrides as in ``load_recipe``; ``what`` names it in messages."""
    refuse_renamed(data, what)
    data, size = expand_size(data)
    follow_changes_(data, frozenset(_apply_(data, change) for change in changes), size)
    return read_table(Recipe, data, what)


def list_recipes() -> list[str]:
    """Return the names of the built-in recipes."""
    return _cookbook().names()


def describe_recipe(name: str) -> str:
    """Return a one-line description of a built-in recipe."""
    about: str = _cookbook().get(name)["about"]
    return about


def _read(reference: str | Path) -> dict[str, Any]:
    path = Path(reference)
    if is_run(path):
        return _parsed(path / RUN_RECIPE, json.loads)
    if path.suffix == ".toml":
        return _parsed(path, tomllib.loads)
    name = str(reference)
    if name not in _cookbook():
        raise RecipeError(
            f"{name!r} is not a recipe, a .toml file or a run.{did_you_mean(name, list_recipes())} Recipes: "
            f"{', '.join(list_recipes())}"
        )
    return json.loads(json.dumps(_cookbook().get(name)["recipe"]))  # type: ignore[no-any-return]


def _parsed(path: Path, loads: Any) -> dict[str, Any]:
    try:
        data = loads(read_text(path, most=MOST_JSON))
    except (OSError, ValueError, RecursionError) as error:
        raise RecipeError(f"{path} can't be read as a recipe: {error}") from error
    if not isinstance(data, dict):
        raise RecipeError(f"{path} contains a {type(data).__name__}, not a recipe")
    return data


def _apply_(data: dict[str, Any], change: str) -> str:
    """Apply one override, and return its key."""
    path, equals, text = change.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise RecipeError(f"{change!r} is not an override: write key=value, as epochs=2 or optimizer.lr=0.05")
    for place in BY_PATTERN:
        above, pattern = keys[: len(place)], keys[len(place) :]
        if above == place and pattern:
            keys = [*place, ".".join(pattern).strip("'\"")]
    value = _value(text)
    refuse_renamed(_nested(keys, value), f"override {change!r}")
    table = data
    for key in keys[:-1]:
        table = table.setdefault(key, {})
        if not isinstance(table, dict):
            raise RecipeError(f"override {change!r}: {key} is a value, not a table")
    table.pop(keys[-1], None)
    if value is not None:
        table[keys[-1]] = value
    return ".".join(keys)


def _nested(keys: Sequence[str], value: Any) -> dict[str, Any]:
    for key in reversed(keys):
        value = {key: value}
    nested: dict[str, Any] = value
    return nested


def _value(text: str) -> Any:
    if text.strip().lower() == "none":
        return None  # TOML has no null; leaving the key out means the same
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):  # tomllib does not wrap all errors
        return text  # a string without quotes, as shells pass it


@cache
def _cookbook() -> Registry[Mapping[str, Any]]:
    cookbook: Registry[Mapping[str, Any]] = Registry("recipe")
    for file in sorted(_files(), key=lambda file: file.name):
        family = tomllib.loads(file.read_text("utf-8"))
        for model in family["models"]:
            recipe = {**family["recipe"], "model": {"name": model, **family["recipe"]["model"]}}
            name = family.get("name") or f"{model}_{file.stem.partition('_')[2]}"
            cookbook.add(name, {"about": family["about"], "recipe": recipe})
    return cookbook


def _files() -> Iterator[Path]:
    folder = Path(str(resources.files("cruciform.training.recipe") / "recipes"))
    return folder.glob("*.toml")
