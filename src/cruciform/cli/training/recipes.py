"""``cruciform recipes``: what there is to train, and what one of them says."""

from typing import Annotated

import typer

from cruciform.cli.shared.arguments import JsonOption
from cruciform.cli.shared.tables import print_json, print_table


def recipes(
    name: Annotated[str | None, typer.Argument(metavar="[RECIPE]", help="Show all that this one says.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the recipes that come with the library, or show one with all its values.

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
        ("recipe", "network", "what it is", "epochs", "batch"),
        [(each, recipe.model.name, about, str(recipe.epochs), str(recipe.batch)) for each, recipe, about in rows],
        left=3,
    )
