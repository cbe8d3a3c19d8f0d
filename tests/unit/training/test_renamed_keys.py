"""Keys of earlier versions: refused with the new name where a user writes them, understood where they were recorded."""

import json
from pathlib import Path
from typing import Any

import pytest

from cruciform.errors import RecipeError
from cruciform.training.experiments.race_result import read_finishes
from cruciform.training.recipe.cookbook import load_recipe
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.recipe.renamed_keys import RENAMED_KEYS, upgrade_recipe
from cruciform.training.run.journal import Journal, parsed, read_journal
from cruciform.training.tables.table import read_table

RESULTS = Path(__file__).parents[3] / "results"
LISTS = ("train_transforms", "eval_transforms")


def nested(entry: str) -> dict[str, Any]:
    """Returns a recipe that has only the old key of an entry."""
    path, _, value = entry.partition("=")
    *above, last = path.split(".")
    table: Any = {last: value or "anything"}
    for name in reversed(above):
        table = {name: [table] if name in LISTS else table}
    return table  # type: ignore[no-any-return]


def as_toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {as_toml(item)}" for key, item in value.items()) + "}"
    return f"[{', '.join(map(as_toml, value))}]" if isinstance(value, list) else json.dumps(value)


@pytest.mark.parametrize("old", RENAMED_KEYS)
def test_an_old_key_is_answered_with_the_new_one(old: str, tmp_path: Path) -> None:
    answer = f"`{old}` is now `{RENAMED_KEYS[old]}`"
    data = nested(old)
    file = tmp_path / "old.toml"
    file.write_text("\n".join(f"{key} = {as_toml(value)}" for key, value in data.items()))
    with pytest.raises(RecipeError) as in_a_file:
        load_recipe(file)
    ((key, value),) = data.items()
    with pytest.raises(RecipeError) as in_an_override:
        load_recipe("modern_folder", [f"{key}={as_toml(value)}"])
    with pytest.raises(RecipeError) as in_data:
        read_table(Recipe, data, "data")
    for error in (in_a_file, in_an_override, in_data):
        assert answer in str(error.value)


@pytest.mark.parametrize("old", [old for old in RENAMED_KEYS if "." in old and old.split(".")[0] not in LISTS])
def test_an_old_dotted_key_is_answered_too(old: str) -> None:
    path, _, value = old.partition("=")
    with pytest.raises(RecipeError) as error:
        load_recipe("modern_cifar10", [f"{path}={value or 1}"])
    assert f"`{old}` is now `{RENAMED_KEYS[old]}`" in str(error.value)


@pytest.mark.parametrize("old", RENAMED_KEYS)
def test_no_new_key_is_an_old_one(old: str) -> None:
    upgraded = upgrade_recipe(nested(old))
    assert upgraded != nested(old)
    assert upgrade_recipe(upgraded) == upgraded


def test_a_pattern_below_an_old_key_keeps_its_dots() -> None:
    with pytest.raises(RecipeError, match="`optimizer.rates` is now `optimizer.lr_mult`"):
        load_recipe("modern_cifar10", ["optimizer.rates.features.conv1.*=0.1"])


@pytest.mark.parametrize("name", ["cifar10", "cifar10-study", "imagenette", "volumes-study"])
def test_recorded_recipes_are_still_read(name: str) -> None:
    finishes = read_finishes(RESULTS / f"{name}.json")
    assert finishes
    for finish in finishes:
        assert read_table(Recipe, dict(finish.recipe), name).optimizer.lr > 0
    recorded = json.loads((RESULTS / f"{name}.json").read_text("utf-8"))["details"][0]
    last = recorded["curve"][-1]
    assert finishes[0].top1_flip_tta == last.get("top1_mirrored", last.get("top1_flip_tta"))


def test_logs_of_earlier_versions_are_still_read(tmp_path: Path) -> None:
    line = parsed(b'{"event": "step", "step": 3, "rate": 0.1, "norm": 2.0}')
    assert line == {"event": "step", "step": 3, "lr": 0.1, "grad_norm": 2.0}
    journal = Journal(tmp_path / "log.jsonl")
    journal.write("epoch", step=3, top1_mirrored=0.5)
    journal.write("notice", step=3, what="said")
    journal.close()
    epoch, notice = read_journal(tmp_path / "log.jsonl")
    assert (epoch["top1_flip_tta"], notice["message"]) == (0.5, "said")
