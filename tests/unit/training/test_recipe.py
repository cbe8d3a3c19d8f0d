from pathlib import Path

import pytest

from cruciform.errors import RecipeError
from cruciform.models.zoo import model_config
from cruciform.sources.build_network import split_reference
from cruciform.sources.network_library import SOURCES
from cruciform.training.recipe.cookbook import list_recipes, load_recipe
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.recipe.schedule import Inverse


@pytest.mark.parametrize("name", list_recipes())
def test_every_recipe_is_whole_names_a_network_that_exists_and_survives_json(name: str) -> None:
    recipe = load_recipe(name)
    source, network = split_reference(recipe.model.name)
    if source == "zoo":
        model_config(network, **recipe.model.options)
    assert network in SOURCES.get(source).names()
    assert Recipe.model_validate_json(recipe.model_dump_json()) == recipe


def test_the_papers_recipes_are_all_there() -> None:
    names = set(list_recipes())
    assert {
        "nin_cifar10",
        "nin_c3_cifar10",
        "nin_c3_lr_cifar10",
        "googlenet_lr_ilsvrc",
        "vgg11_gmp_lr_places205",
    } <= names
    assert {name for name in names if name.startswith("vgg11") and name.endswith("ilsvrc")} == {
        f"{model}_ilsvrc"
        for model in (
            "vgg11", "vgg11_gmp", "vgg11_gmp_sf", "vgg11_gmp_lr", "vgg11_gmp_lr_2x", "vgg11_gmp_lr_join",
            "vgg11_gmp_lr_join_wfull", "vgg11_gmp_lr_lde",
        )
    }  # fmt: skip


def test_the_papers_hyper_parameters() -> None:
    vgg, googlenet, nin = map(load_recipe, ("vgg11_gmp_lr_ilsvrc", "googlenet_lr_ilsvrc", "nin_c3_lr_cifar10"))
    assert (vgg.batch_size, vgg.optimizer.lr, vgg.optimizer.weight_decay, vgg.epochs) == (256, 0.01, 5e-4, 74)
    assert isinstance(vgg.schedule, Inverse)
    assert vgg.schedule.decay == vgg.optimizer.weight_decay, "the paper's λ is the weight decay"
    assert vgg.schedule.plateau is not None
    assert (googlenet.batch_size, googlenet.schedule.kind, googlenet.loss.aux_loss_weight) == (32, "poly", 0.3)
    assert googlenet.epochs * 1_281_167 / 32 == pytest.approx(2.4e6, rel=0.01)
    assert (nin.batch_size, nin.optimizer.weight_decay, nin.model.options["dropout"]) == (128, 1e-4, 0.5)
    assert nin.epochs * 50_000 / 128 == pytest.approx(120_000, rel=0.01)
    assert nin.data.whiten is not None
    assert (nin.data.whiten.scale, nin.data.whiten.eps) == (55, 0.1)
    for recipe in (vgg, googlenet, nin):
        assert recipe.optimizer.bias_lr_mult == 2
        assert recipe.optimizer.decay_norm_and_bias is False


def test_changes_are_typed_as_toml_is() -> None:
    recipe = load_recipe(
        "nin_c3_lr_cifar10",
        [
            "epochs=2",
            "precision=bf16",
            "optimizer.lr=5e-3",
            "data.whiten=none",
            'model.name="timm:resnet18"',
            "train_transforms=[]",
            "model.init=auto",
        ],
    )
    assert recipe.model.init == "auto"
    assert (recipe.epochs, recipe.precision, recipe.optimizer.lr) == (2, "bf16", 5e-3)
    assert recipe.data.whiten is None
    assert recipe.model.name == "timm:resnet18"
    assert recipe.train_transforms == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("epoch=2", "there is no key 'epoch'. Did you mean 'epochs'?"),
        ("optimizer.momentun=0.9", "there is no key 'optimizer.momentun'. Did you mean 'momentum'?"),
        ("schedule.plateau.patence=3", "there is no key 'schedule.plateau.patence'. Did you mean 'patience'?"),
        ("data.whiten.scal=3", "there is no key 'data.whiten.scal'. Did you mean 'scale'?"),
        ('train_transforms=[{kind="mirrr"}]', "train_transforms has the unknown kind 'mirrr'"),
        ('train_transforms=[{kind="hflip", axs=[1]}]', "there is no key 'train_transforms.axs'. Did you mean 'axes'"),
        ("optimizer.kind=sdg", "optimizer has the unknown kind 'sdg'. Did you mean 'sgd'?"),
        ("precision=fp8", "precision should be 'fp32', 'bf16', 'fp16' or 'auto', not 'fp8'"),
        ("epochs=0", "epochs should be greater than or equal to 1, not 0"),
        ("model.scheme=lrr", "model.scheme: unknown scheme 'lrr'. Did you mean 'lr'?"),
        ("model.scheme=auto", "model.scheme: unknown scheme 'auto'"),  # only init has an "auto"
        ("model.init=paper", "model.init: unknown initialization 'paper'"),
        ("data.kind=cifar", "data.kind: unknown kind of data set 'cifar'. Did you mean 'cifar10'?"),
        ("grad_clip_norm=nan", "grad_clip_norm should be a finite number"),
        (
            "optimizer.kind=adamw",
            "optimizer of kind 'adamw' has no key 'momentum'; drop it by setting optimizer.mom",
        ),
        ('optimizer={kind = "adamw", lr = 0.1, betas = [1, 2]}', "optimizer.betas should be less than 1, not 1"),
        (
            'optimizer={kind = "sgd", lr = 0.1, momentum = 0, nesterov = true}',
            "optimizer.nesterov: Nesterov needs momentum",
        ),
        ('train_transforms=[{kind="random-crop", size=0}]', "size must be 1 or more"),
        ('train_transforms=[{kind="random-crop", size=8, padding=-1}]', "and padding 0 or more"),
        ('train_transforms=[{kind="hflip", axes=[]}]', "give at least one axis"),
        (
            'train_transforms=[{kind="random-resized-crop", size=8, min_scale=2.0}]',
            "min_scale must be above 0 and at most 1",
        ),
        ("data.whiten.eps=-1", "scale and eps must be above 0"),
        ("data.whiten.eps=nan", "scale and eps must be above 0"),
        ("epochs", "'epochs' is not an override: write key=value"),
        ("epochs.x=1", "override 'epochs.x=1': epochs is a value, not a table"),
    ],
)
def test_wrong_keys_and_values_are_refused_with_what_to_type(change: str, message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe("nin_c3_lr_cifar10", [change])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("written", ["features.conv1.*", '"features.conv1.*"', "bias"])
def test_patterns_of_names_keep_their_dots(written: str) -> None:
    made = load_recipe("nin_cifar10", [f"freeze.{written}=0.5", f"optimizer.lr_mult.{written}=2"])
    pattern = written.strip('"')
    assert (made.freeze, made.optimizer.lr_mult) == ({pattern: 0.5}, {pattern: 2})
    assert not load_recipe("nin_cifar10", [f"freeze.{written}=0.5", f"freeze.{written}=none"]).freeze


def test_an_unknown_recipe_has_a_hint() -> None:
    with pytest.raises(RecipeError, match="'nin_c3_cifar' is not a recipe.*Did you mean 'nin_c3_cifar10'"):
        load_recipe("nin_c3_cifar")


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'epochs = 3\nbatch_size = 8\n[model]\nname = "nin"\n[data]\nkind = "cifar10"\npath = "x"\n'
        '[optimizer]\nkind = "adamw"\nlr = 1e-3\n'
    )
    assert load_recipe(path).epochs == 3
    path.write_text("epochs = = 3")
    with pytest.raises(RecipeError, match="can't be read as a recipe"):
        load_recipe(path)
    with pytest.raises(RecipeError, match="can't be read as a recipe"):
        load_recipe(tmp_path / "absent.toml")


def test_half_of_a_character_is_refused() -> None:
    with pytest.raises(RecipeError, match="holds a value that can't be written as JSON"):
        load_recipe("nin_cifar10", ["data.path=\udc80"])
