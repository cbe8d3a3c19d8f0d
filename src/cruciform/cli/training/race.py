"""``cruciform race``: recipes against each other, seed by seed."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cruciform.cli.shared.arguments import BackendOption, DeviceOption, JsonOption, WorkersOption, processes_typed
from cruciform.cli.shared.parsing import ending, picture
from cruciform.cli.shared.progress import interruptible
from cruciform.cli.shared.tables import print_json, print_table
from cruciform.cli.shared.terminal import console
from cruciform.errors import OptionError

if TYPE_CHECKING:
    from cruciform.training.experiments.race import Contestant, Finish

MARKS = (0.90, 0.93, 0.94)


def race(
    recipes: Annotated[
        list[str],
        typer.Argument(
            metavar="RECIPE...",
            help="Names of 'cruciform recipes' or .toml files; with changes of its own as NAME,epochs=14.",
        ),
    ],
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each recipe, with the seeds 0, 1, ...")] = 3,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change all recipes, as --set epochs=2; may be repeated."),
    ] = None,
    folder: Annotated[Path, typer.Option("--runs", "-o", metavar="DIR", help="Keep the runs here.")] = Path(
        "runs/race"
    ),
    result: Annotated[
        Path | None,
        typer.Option(
            callback=ending(".json"),
            help="Record into this file, each run when it ends; what is in it is not run again.",
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(callback=picture, help="Draw accuracy against time into this file.")
    ] = None,
    backend: BackendOption = "local",
    workers: WorkersOption = 1,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Train recipes with several seeds each, in turns, and compare accuracy, time and multiply-accumulates.

    Interrupt it at any moment; the same command goes on. The machine should do nothing else: times are compared.

    Example: cruciform race cifar_fast_cifar10 cifar_fast_lr3_cifar10,epochs=14 --seeds 3 --plot race.png
    """
    from cruciform.cli.shared.run_progress import make_observer
    from cruciform.training.experiments.race import Processes, curves, run_race
    from cruciform.training.experiments.race_result import add_finish, read_finishes, record_race

    contestants = [_contestant(text, changes or []) for text in recipes]
    if len({one.name for one in contestants}) < len(contestants):
        raise OptionError(f"{' '.join(recipes)}: two of them would be called the same; give each changes of its own")
    finishes = read_finishes(result) if result else []
    settings = [f"--set {change}" for change in changes or ()]
    command = " ".join(["cruciform race", *recipes, f"--seeds {seeds}", *settings, *processes_typed(backend, workers)])
    with interruptible("Go on with the same command"):
        for finish in run_race(
            contestants,
            range(seeds),
            folder,
            finished=finishes,
            observe=make_observer,
            processes=Processes(workers, backend, device),
            command=command,
        ):
            finishes.append(finish)
            if result:
                add_finish(finish, result, lambda runs: record_race(runs, result, command=command))
    if plot:
        from cruciform.plot.race import draw_race

        draw_race(curves(finishes), plot)
    if as_json:
        print_json([finish.to_dict() for finish in finishes])
        return
    _print(finishes)


def _contestant(text: str, changes: list[str]) -> "Contestant":
    from cruciform.training.experiments.race import Contestant
    from cruciform.training.recipe.cookbook import load_recipe

    name, *own = text.split(",")
    made = load_recipe(name, [*changes, *own])
    # The name of a directory, too: the last part of each key, and its value without what paths are made of.
    settings = [(key.rpartition(".")[2], value) for key, _, value in (change.partition("=") for change in own)]
    label = "-".join((Path(name).stem, *(f"{key}={value.replace('/', '_')}" for key, value in settings)))
    return Contestant(label, made)


def _print(finishes: "list[Finish]") -> None:
    from cruciform.training.experiments.race import by_contestant, summarize

    rows = []
    for name, group in by_contestant(finishes).items():
        found = summarize(group)
        marks = [[finish.seconds_to(mark) for finish in group] for mark in MARKS]
        rows.append(
            (
                name,
                f"{found['mmacs']:.1f}",
                f"{found['params']:,.0f}",
                f"{found['seeds']:.0f}",
                _mean(found, "plain_accuracy"),
                _mean(found, "accuracy"),
                f"{found['seconds']:,.0f}",
                f"{found['images_per_second']:,.0f}",
                *(_reached(seconds) for seconds in marks),
            )
        )
    columns = ("contestant", "MMACs", "parameters", "seeds", "plain %", "with mirror images %", "seconds", "images/s")
    print_table("The race", (*columns, *(f"s to {mark:.0%}" for mark in MARKS)), rows)
    console().print("means over the seeds ± their standard deviation; seconds of training, evaluations not counted")


def _mean(found: "dict[str, float]", what: str) -> str:
    deviation = found.get(f"{what}_deviation")  # one seed has none
    return f"{found[what]:.2f}" + ("" if deviation is None else f" ± {deviation:.2f}")


def _reached(seconds: "list[float | None]") -> str:
    there = [value for value in seconds if value is not None]
    if not there:
        return "–"
    mean = f"{sum(there) / len(there):,.0f}"
    return mean if len(there) == len(seconds) else f"{mean} ({len(there)} of {len(seconds)})"
