"""``cruciform recipes``: the built-in recipes."""

from typing import Annotated

import typer

from cruciform.cli.shared.arguments import JsonOption
from cruciform.cli.shared.tables import print_json, print_table


def recipes(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[RECIPE]", help="Show all values of this recipe: a name, a .toml file or a run."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the built-in recipes, or show one with all its values.

    Example: cruciform recipes nin_c3_lr_cifar10
    """
    from cruciform.training.recipe.cookbook import describe_recipe, list_recipes, load_recipe

    if name:
        print_json(load_recipe(name).to_dict())
        return
    rows = [(each, load_recipe(each), describe_recipe(each)) for each in list_recipes()]
    if as_json:
        print_json({each: recipe.to_dict() for each, recipe, _ in rows})
        return
    print_table(
        "recipes",
        ("recipe", "network", "description", "epochs", "batch size"),
        [(each, recipe.model.name, about, str(recipe.epochs), str(recipe.batch_size)) for each, recipe, about in rows],
        left=3,
    )
