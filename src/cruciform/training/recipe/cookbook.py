"""Recipes by name, from TOML files, and the few changes that a command line makes to one."""

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
from cruciform.training.recipe.sizes import expand_size, follow_changes_, refuse_small_side
from cruciform.training.recipe.table import read_table

BY_PATTERN = (["freeze"], ["optimizer", "rates"])
"""The tables whose keys are patterns of parameters' names, which have dots of their own."""


def load_recipe(given: str | Path, changes: Sequence[str] = ()) -> Recipe:
    """Returns a recipe.

    Args:
        given: A name of ``list_recipes()``, a TOML file, or the directory of a run.
        changes: What is changed about it, each as ``key=value`` with a value as TOML has them: ``optimizer.rate=0.05``.
    """
    recipe = make_recipe(_read(given), changes, str(given))
    if not is_run(Path(given)):  # what ran, or failed, is read as it was
        refuse_small_side(recipe.data.short_side, {"augment": recipe.augment, "prepare": recipe.prepare})
    return recipe


def make_recipe(data: dict[str, Any], changes: Sequence[str], what: str) -> Recipe:
    """Returns a recipe of plain data, changed as ``load_recipe`` has it; ``what`` it is, for the message."""
    data, size = expand_size(data)
    follow_changes_(data, frozenset(_apply_(data, change) for change in changes), size)
    return read_table(Recipe, data, what)


def list_recipes() -> list[str]:
    """Returns the names of the recipes that come with the library."""
    return _cookbook().names()


def describe_recipe(name: str) -> str:
    """Returns what a recipe is, in a few words."""
    about: str = _cookbook().get(name)["about"]
    return about


def _read(given: str | Path) -> dict[str, Any]:
    path = Path(given)
    if is_run(path):
        return _parsed(path / RUN_RECIPE, json.loads)
    if path.suffix == ".toml":
        return _parsed(path, tomllib.loads)
    name = str(given)
    if name not in _cookbook():
        raise RecipeError(
            f"{name!r} is no recipe, no .toml file and no run.{did_you_mean(name, list_recipes())} Recipes: "
            f"{', '.join(list_recipes())}"
        )
    return json.loads(json.dumps(_cookbook().get(name)["recipe"]))  # type: ignore[no-any-return]  # a copy to change


def _parsed(path: Path, loads: Any) -> dict[str, Any]:
    try:
        data = loads(read_text(path, most=MOST_JSON))
    except (OSError, ValueError, RecursionError) as error:
        raise RecipeError(f"{path} can't be read as a recipe: {error}") from error
    if not isinstance(data, dict):
        raise RecipeError(f"{path} holds a {type(data).__name__}, not a recipe")
    return data


def _apply_(data: dict[str, Any], change: str) -> str:
    """Makes one change, and returns the key that was changed."""
    path, equals, text = change.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise RecipeError(f"--set {change}: write key=value, as --set epochs=2 or --set optimizer.rate=0.05")
    for place in BY_PATTERN:
        above, pattern = keys[: len(place)], keys[len(place) :]
        if above == place and pattern:
            keys = [*place, ".".join(pattern).strip("'\"")]
    table = data
    for key in keys[:-1]:
        table = table.setdefault(key, {})
        if not isinstance(table, dict):
            raise RecipeError(f"--set {change}: {key} is a value, not a table")
    value = _value(text)
    table.pop(keys[-1], None)
    if value is not None:
        table[keys[-1]] = value
    return ".".join(keys)


def _value(text: str) -> Any:
    if text.strip().lower() == "none":
        return None  # TOML has no word for it; leaving the key out means the same
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):  # not all that tomllib can't read is an error of its own kind
        return text  # a word without quotes, as shells leave them


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
