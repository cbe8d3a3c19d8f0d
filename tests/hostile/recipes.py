"""Recipes, mutated: files of TOML and of JSON, and changes from a command line."""

import json
import tomllib
from functools import cache
from typing import Any

from kind import Silent, Trial, hostile
from mutate import ODD, TEXTS, change, mutate_bytes, mutate_json

from cruciform.store.run_marker import RUN_RECIPE
from cruciform.training.recipe.cookbook import list_recipes, load_recipe
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.tables.table import read_table

TEXT = """
epochs = 30
batch_size = 128
precision = "bf16"
ema = 0.999
train_transforms = [{ kind = "random-crop", size = 32, padding = 4 }, { kind = "hflip" }]
eval_transforms = [{ kind = "center-crop", size = 32 }]
[model]
name = "timm:resnet18"
scheme = "lr"
options = { num_classes = 10 }
[data]
kind = "cifar10"
path = "cifar-10-batches-bin"
mean = [125.3, 123.0, 113.9]
std = [63.0, 62.1, 66.7]
[optimizer]
kind = "sgd"
lr = 0.05
[schedule]
kind = "one-cycle"
[freeze]
"0.*" = 0.5
"""


@cache
def data() -> dict[str, Any]:
    return tomllib.loads(TEXT)


@cache
def known() -> dict[str, Any]:
    return {name: load_recipe(name).to_dict() for name in list_recipes()[:6]}


def check(recipe: Recipe) -> None:
    """A recipe that was taken must be the same when it is written and read again, as every run does."""
    text = recipe.model_dump_json()
    if read_table(Recipe, json.loads(text), "again") != recipe:
        raise Silent("a recipe that was taken is another one when it is written and read again")


@hostile("recipes in TOML", 2_500)
def attack_toml(trial: Trial) -> None:
    trial.scratch.mkdir()
    path = trial.scratch / "recipe.toml"
    random = trial.random
    text = mutate_bytes(TEXT.encode(), random)[1]
    if random.random() < 0.2:
        key = random.choice(TEXT.split("\n")).partition("=")[0]
        odd = random.choice(("9" * 5000, "[" * 5000, "1e999", "nan", "0x" + "f" * 500, "'" * 100, "1979-05-27",
                             '"\\U00110000"', "{" * 500, "a.b." * 3000 + "c=1"))  # fmt: skip
        text = TEXT.encode() + f"\n{key} = {odd}\n".encode()
    path.write_bytes(text)
    check(load_recipe(path))


@hostile("recipes in JSON", 1_500)
def attack_json(trial: Trial) -> None:
    trial.scratch.mkdir()
    random = trial.random
    base = random.choice(list(known().values()))
    (trial.scratch / RUN_RECIPE).write_bytes(mutate_json(base, random))
    check(load_recipe(trial.scratch))


@hostile("changes by --set", 2_500)
def attack_change(trial: Trial) -> None:
    random = trial.random
    name = random.choice(list(known()))
    paths = list(_paths(known()[name]))
    changes = []
    for _ in range(random.randint(1, 3)):
        path = random.choice(paths) if random.random() < 0.8 else random.choice(("", ".", "a..b", "model.", *TEXTS))
        value = random.choice((*map(str, ODD), *TEXTS, "[" * 3000, "[1,", "{a=1}", "'''", "\n[x]\ny=1", "=", '"'))
        if random.random() < 0.2:
            value = json.dumps(change(known()[name], random))[:500]
        changes.append(f"{path}={value}" if random.random() < 0.95 else path)
    check(load_recipe(name, changes))


def _paths(table: dict[str, Any], above: str = "") -> Any:
    for key, value in table.items():
        yield f"{above}{key}"
        if isinstance(value, dict):
            yield from _paths(value, f"{above}{key}.")
