"""``cruciform.race`` and ``cruciform.sweep``: recipes compared over seeds, and settings searched."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cruciform.training.experiments.race import RaceResult
    from cruciform.training.experiments.sweep import SweepResult
    from cruciform.training.run.observer import Observer
    from cruciform.training.runtime.processes import Processes


def race(
    recipes: Sequence[str],
    *,
    seeds: int = 3,
    changes: Sequence[str] = (),
    folder: str | Path = "runs/race",
    result: str | Path | None = None,
    processes: "Processes | None" = None,
    observe: "Callable[[], Observer] | None" = None,
) -> "RaceResult":
    """Train recipes with several seeds each, interleaved, and compare accuracy, time and MACs.

    A race that was interrupted is resumed by the same call.

    Args:
        recipes: Recipe names or TOML files, each with its own overrides as ``NAME,epochs=14``.
        seeds: Number of runs of each recipe, with the seeds 0, 1, ...
        changes: Overrides of all recipes, as ``key=value``.
        folder: Where the runs are stored.
        result: A .json file that each run is recorded in when it ends; recorded runs are not computed again.
        processes: The processes of each run; None: this one.
        observe: Makes the observer of each run.
    """
    from cruciform.training.backends.backend import ONE_PROCESS
    from cruciform.training.experiments.race import RaceResult, read_contestant, run_race
    from cruciform.training.experiments.race_result import add_finish, read_finishes, record_race
    from cruciform.training.run.observer import Observer

    contestants = [read_contestant(text, changes) for text in recipes]
    processes = processes or ONE_PROCESS
    path = None if result is None else Path(result)
    finishes = read_finishes(path) if path else []
    options = [f"--set {change}" for change in changes]
    if processes.backend != "local":
        options += [f"--backend {processes.backend} --workers {processes.workers}"]
    command = " ".join(["cruciform race", *recipes, f"--seeds {seeds}", *options])
    for finish in run_race(
        contestants,
        range(seeds),
        Path(folder),
        finished=finishes,
        observe=observe or Observer,
        processes=processes,
        command=command,
    ):
        finishes.append(finish)
        if path:
            add_finish(finish, path, lambda runs: record_race(runs, path, command=command))
    return RaceResult(tuple(finishes))


def sweep(
    recipe: str | Path,
    search: Sequence[str],
    *,
    changes: Sequence[str] = (),
    trials: int = 20,
    folder: str | Path = "runs/sweep",
    processes: "Processes | None" = None,
    on_progress: Callable[[int, int], None] = lambda done, of: None,
) -> "SweepResult":
    """Search settings of a recipe with Optuna, by accuracy on held-out training samples.

    A sweep that was interrupted is resumed by the same call.

    Args:
        recipe: A recipe name or TOML file.
        search: The search space, as ``optimizer.lr=0.01..0.5:log`` or ``model.scheme=lr,lr-join``.
        changes: Overrides of the recipe, as ``data.holdout=5000``.
        trials: Number of trials.
        folder: Where the runs and the study are stored.
        processes: With the backend ``ray``, ``workers`` trials run at once on a Ray cluster; None, or ``local``: one
            after the other, in this process.
        on_progress: Called with the number of trials done, and of all.
    """
    from cruciform.errors import OptionError
    from cruciform.training.backends.backend import ONE_PROCESS
    from cruciform.training.experiments.sweep import Search, Sweep, SweepResult, run_sweep
    from cruciform.training.recipe.cookbook import load_recipe

    processes = processes or ONE_PROCESS
    if processes.backend not in ("local", "ray"):
        raise OptionError(f"a sweep runs on the backend local or ray, not {processes.backend}")
    made = Sweep(
        lambda more: load_recipe(recipe, [*changes, *more]), [Search.read(one) for one in search], trials, Path(folder)
    )
    found = []
    on_progress(0, trials)
    workers = processes.workers if processes.backend == "ray" else None
    for trial in run_sweep(made, workers=workers, device=processes.device):
        found.append(trial)
        on_progress(len(found), trials)
    return SweepResult(str(recipe), tuple(sorted(found, key=lambda trial: -(trial.top1 or 0))))
