"""``cruciform sweep``: which settings of a recipe are best."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cruciform.cli.shared.arguments import DeviceOption, JsonOption
from cruciform.cli.shared.progress import interruptible, progress_bar
from cruciform.cli.shared.tables import print_json, print_table
from cruciform.cli.shared.terminal import console
from cruciform.errors import RunError
from cruciform.text.wording import plural

if TYPE_CHECKING:
    from cruciform.training.experiments.sweep import SweepTrial


def sweep(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A name of 'cruciform recipes', or a .toml file.")],
    search: Annotated[
        list[str],
        typer.Option(
            metavar="KEY=VALUES",
            help="KEY=LOW..HIGH (1..4: whole numbers, 1.0..4.0: all between), KEY=LOW..HIGH:log or KEY=ONE,OTHER.",
        ),
    ],
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change the recipe, as --set epochs=2; may be repeated."),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Runs in all.")] = 20,
    folder: Annotated[
        Path, typer.Option("--runs", "-o", metavar="DIR", help="Keep the runs and the study here.")
    ] = Path("runs/sweep"),
    on_ray: Annotated[bool, typer.Option("--ray", help="On a Ray cluster: RAY_ADDRESS, or this machine.")] = False,
    workers: Annotated[int, typer.Option(min=1, help="Runs at a time, with --ray.")] = 2,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Try settings of a recipe, proposed by Optuna, judged on held-out training samples, never on the test set.

    Kill it at any moment: the same command goes on with the trials that were under way.

    Example: cruciform sweep modern_cifar10 --search optimizer.rate=0.01..0.5:log --set data.holdout=5000 --set epochs=2
    """
    from cruciform.training.experiments.sweep import Search, Sweep, run_sweep
    from cruciform.training.recipe.cookbook import load_recipe

    made = Sweep(
        lambda more: load_recipe(recipe, [*(changes or ()), *more]),
        [Search.read(one) for one in search],
        trials,
        folder,
    )
    found: list[SweepTrial] = []
    with interruptible("Go on with the same command"), progress_bar("trials") as advance:
        advance(0, trials)
        for trial in run_sweep(made, workers=workers if on_ray else None, device=device):
            found.append(trial)
            advance(len(found), trials)
    found.sort(key=lambda trial: -(trial.top1 or 0))
    if as_json:
        print_json([vars(trial) for trial in found])
    else:
        _print(recipe, changes or [], found)
    if found[0].top1 is None:
        raise RunError("no trial came to its end; each says why")


def _print(recipe: str, changes: list[str], found: "list[SweepTrial]") -> None:
    keys = list(found[0].settings)
    print_table(
        f"{recipe}, {plural(len(found), 'trial')}, the best first",
        ("trial", *keys, "right"),
        [
            (
                str(trial.number),
                *(f"{trial.settings[key]:.4g}" if isinstance(trial.settings[key], float) else str(trial.settings[key])
                  for key in keys),
                f"{trial.top1:.2%}" if trial.top1 is not None else trial.reason or "",
            )
            for trial in found
        ],
    )  # fmt: skip
    if found[0].top1 is not None:
        # As it was swept, but on all training samples, and judged on the test set.
        kept = [change for change in changes if not change.startswith("data.holdout=")]
        best = [f"{key}={value}" for key, value in found[0].settings.items()]
        options = [word for change in (*kept, *best) for word in ("--set", change)]
        console().print(
            f"the best: {shlex.join(['cruciform', 'train', recipe, *options])}", markup=False, soft_wrap=True
        )
