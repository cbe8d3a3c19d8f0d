"""``data.size``: one setting for the short side, the crops and the input of the network."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cruciform.data.loader import input_size
from cruciform.data.open_dataset import open_dataset
from cruciform.data.samples.source import Opening
from cruciform.data.transforms.transforms import CenterCrop, Hflip, RandomCrop, RandomResizedCrop
from cruciform.errors import RecipeError
from cruciform.training.recipe.cookbook import list_recipes, load_recipe
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.run.run import Run

OF_IMAGES = [name for name in list_recipes() if load_recipe(name).data.kind == "folder" and name != "vgg11_tiny"]


def sizes(recipe: Recipe) -> tuple[int | None, list[int], list[int]]:
    crops = (RandomCrop, CenterCrop, RandomResizedCrop)
    found = [
        [one.size for one in each if isinstance(one, crops)]
        for each in (recipe.train_transforms, recipe.eval_transforms)
    ]
    return recipe.data.short_side, found[0], found[1]


@pytest.mark.parametrize("name", OF_IMAGES)
def test_recipes_of_images_are_what_they_were_and_one_setting_moves_all_their_sizes(name: str) -> None:
    assert sizes(load_recipe(name)) == (256, [224], [224])
    assert "input_size" not in load_recipe(name).model.options
    moved = load_recipe(name, ["data.size=112"])
    assert sizes(moved) == (128, [112], [112])
    assert moved.model.options["input_size"] == 112
    assert moved.train_transforms[1] == Hflip()


def test_a_recipe_of_smaller_images_moves_all_its_sizes_too() -> None:
    assert sizes(load_recipe("vgg11_tiny")) == (48, [44], [44])
    moved = load_recipe("vgg11_tiny", ["data.size=56"])
    assert sizes(moved) == (64, [56], [56])
    assert moved.model.options["input_size"] == 56


def test_there_are_recipes_of_images() -> None:
    assert len(OF_IMAGES) > 10


def test_a_setting_that_is_given_besides_is_kept() -> None:
    assert sizes(load_recipe("modern_folder", ["data.short_side=120", "data.size=112"])) == (120, [112], [112])
    bare = load_recipe("modern_folder", ["data.size=112", 'train_transforms=[{kind="random-crop", padding=4}]'])
    assert bare.train_transforms == (RandomCrop(112, padding=4),)


def test_networks_of_others_take_no_option_for_their_input() -> None:
    recipe = load_recipe("modern_folder", ["model.name=timm:resnet18", "data.size=64"])
    assert recipe.model.options == {}
    assert sizes(recipe) == (73, [64], [64])


def test_sizes_that_are_written_one_by_one_mean_what_they_meant() -> None:
    """The changes by which sizes were set before there was one setting for them."""
    changes = ["data.short_side=128", "train_transforms=[{kind='random-crop', size=112}, {kind='hflip'}]",
               "eval_transforms=[{kind='center-crop', size=112}]", "model.options.input_size=112"]  # fmt: skip
    assert load_recipe("vgg11_gmp_lr_ilsvrc", changes) == load_recipe("vgg11_gmp_lr_ilsvrc", ["data.size=112"])
    assert load_recipe("modern_folder", ["data.short_side=none"]).data.short_side is None
    assert load_recipe("modern_folder", ["model.options.input_size=96"]).model.options == {"input_size": 96}
    assert load_recipe("modern_folder", ["data.kind=cifar10", "data.short_side=none"]).data.kind == "cifar10"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["data.short_side=40"], "too small for the center-crop of 224 in eval_transforms. Set data.size=40 instead"),
        (["data.size=64", 'eval_transforms=[{kind="center-crop", size=32}]'], "in eval_transforms has size=32; drop"),
        (["data.size=64", "model.options.input_size=32"], "model.options.input_size=32; drop one of them"),
        (["data.size=64", "eval_transforms=[]"], 'or images of other sizes are evaluated: set eval_transforms='),
        (["data.size=0"], "data.size must be a number of pixels, 1 or more; not 0"),
        (["data.size=6.5"], "not 6.5"),
        (["data.size=true"], "not True"),
        (["data.size=64", "train_transforms=x"], "train_transforms should be a valid tuple, not 'x'"),
        (["data.kind=cifar10", "data.size=24"], "the images of cifar10 have a fixed size. Leave it out"),
        (["data.sise=24"], "Did you mean 'size'?"),
    ],
)  # fmt: skip
def test_sizes_that_contradict_one_another_are_refused_with_what_to_type(changes: list[str], message: str) -> None:
    with pytest.raises(RecipeError) as refused:
        load_recipe("modern_folder", changes)
    assert message in str(refused.value)


def write_toml(path: Path, data: str, rest: str) -> Path:
    path.write_text(
        'epochs = 1\nbatch_size = 4\nmodel = { name = "vgg11_gmp_lr" }\noptimizer = { kind = "sgd", lr = 0.01 }\n'
        f'data = {{ kind = "folder", path = "x", {data} }}\n{rest}'
    )
    return path


def test_a_file_of_ones_own_has_the_setting_too(tmp_path: Path) -> None:
    rest = 'train_transforms = [{ kind = "random-crop" }]\neval_transforms = [{ kind = "center-crop", size = 112 }]\n'
    recipe = load_recipe(write_toml(tmp_path / "own.toml", "size = 112", rest))
    assert sizes(recipe) == (128, [112], [112])
    assert recipe.model.options == {"input_size": 112}
    other = load_recipe(tmp_path / "own.toml", ["model.name=timm:resnet18"])
    assert other.model.options == {}
    assert sizes(load_recipe(tmp_path / "own.toml", ["data.size=56"])) == (64, [56], [56])
    with pytest.raises(RecipeError, match=r"data.size=96, but the center-crop in eval_transforms has size=112"):
        load_recipe(write_toml(tmp_path / "own.toml", "size = 96", rest))
    with pytest.raises(RecipeError, match=r"'train_transforms.size' is missing"):
        load_recipe(write_toml(tmp_path / "own.toml", "short_side = 128", rest))


def test_what_is_stored_has_the_sizes_themselves_and_can_be_moved_again(tmp_path: Path) -> None:
    recipe, run = load_recipe("modern_folder", ["data.size=32"]), Run(tmp_path / "run")
    with run.locked():
        run.prepare(recipe, resume=False)
    assert '"short_side": 37' in (tmp_path / "run" / "recipe.json").read_text()
    assert '"size": null' not in (tmp_path / "run" / "recipe.json").read_text()
    assert load_recipe(tmp_path / "run") == recipe
    assert sizes(load_recipe(tmp_path / "run", ["data.size=28"])) == (32, [28], [28])


def test_images_are_brought_to_the_size_that_the_network_sees(tmp_path: Path) -> None:
    folder = tmp_path / "train" / "cat"
    folder.mkdir(parents=True)
    Image.fromarray(np.zeros((50, 90, 3), np.uint8)).save(folder / "a.png")
    recipe = load_recipe("modern_folder", ["data.size=28"])
    source = open_dataset("folder", Opening(tmp_path, "train", recipe.data.short_side))
    assert source[0].image.shape == (32, 58, 3)
    assert input_size(source, recipe.eval_transforms) == (3, 28, 28)
    assert input_size(source, recipe.train_transforms) == (3, 28, 28)
