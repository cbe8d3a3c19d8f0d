"""``cruciform sweep``: search the settings of a recipe."""

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
    from cruciform.training.experiments.sweep import SweepResult


def sweep(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A name of 'cruciform recipes', or a .toml file.")],
    search: Annotated[
        list[str],
        typer.Option(
            metavar="KEY=VALUES",
            help="KEY=LOW..HIGH (1..4: integers, 1.0..4.0: floats), KEY=LOW..HIGH:log or KEY=ONE,OTHER; repeatable.",
        ),
    ],
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a recipe key, as --set epochs=2; repeatable."),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Number of trials.")] = 20,
    folder: Annotated[
        Path, typer.Option("--runs", "-o", metavar="DIR", help="Store the runs and the study here.")
    ] = Path("runs/sweep"),
    on_ray: Annotated[bool, typer.Option("--ray", help="Run on a Ray cluster: RAY_ADDRESS, or this machine.")] = False,
    workers: Annotated[int, typer.Option(min=1, help="Concurrent trials, with --ray.")] = 2,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Search settings of a recipe with Optuna, by accuracy on held-out training samples, not on the test set.

    It can be killed; the same command resumes the trials that were running.

    Example: cruciform sweep modern_cifar10 --search optimizer.lr=0.01..0.5:log --set data.holdout=5000 --set epochs=2
    """
    from cruciform.api.experiments import sweep as run_sweep
    from cruciform.training.runtime.processes import Processes

    processes = Processes("ray", workers, device) if on_ray else Processes(device=device)
    with interruptible("Resume with the same command"), progress_bar("trials") as on_progress:
        found = run_sweep(
            recipe,
            search,
            changes=changes or (),
            trials=trials,
            folder=folder,
            processes=processes,
            on_progress=on_progress,
        )
    if as_json:
        print_json([vars(trial) for trial in found.trials])
    else:
        _print(found, changes or [])
    if found.best is None:
        raise RunError("all trials failed; the table gives the reason of each")


def _print(found: "SweepResult", changes: list[str]) -> None:
    keys = list(found.trials[0].settings)
    print_table(
        f"{found.recipe}, {plural(len(found.trials), 'trial')}, the best first",
        ("trial", *keys, "top-1 accuracy"),
        [
            (
                str(trial.number),
                *(f"{trial.settings[key]:.4g}" if isinstance(trial.settings[key], float) else str(trial.settings[key])
                  for key in keys),
                f"{trial.top1:.2%}" if trial.top1 is not None else trial.reason or "",
            )
            for trial in found.trials
        ],
    )  # fmt: skip
    if found.best is not None:
        # As in the sweep, but on all training samples, and evaluated on the test set.
        kept = [change for change in changes if not change.startswith("data.holdout=")]
        best = [f"{key}={value}" for key, value in found.best.settings.items()]
        options = [word for change in (*kept, *best) for word in ("--set", change)]
        console().print(
            f"the best: {shlex.join(['cruciform', 'train', found.recipe, *options])}", markup=False, soft_wrap=True
        )
