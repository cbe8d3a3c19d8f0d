"""``cruciform race``: recipes compared over several seeds."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cruciform.cli.shared.arguments import BackendOption, DeviceOption, JsonOption, WorkersOption
from cruciform.cli.shared.parsing import ending, picture
from cruciform.cli.shared.progress import interruptible
from cruciform.cli.shared.tables import print_json, print_table
from cruciform.cli.shared.terminal import console

if TYPE_CHECKING:
    from cruciform.training.experiments.race import RaceResult

MARKS = (0.90, 0.93, 0.94)


def race(
    recipes: Annotated[
        list[str],
        typer.Argument(
            metavar="RECIPE...",
            help="Names of 'cruciform recipes' or .toml files, each with its own overrides as NAME,epochs=14.",
        ),
    ],
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each recipe, with the seeds 0, 1, ...")] = 3,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Override a key of all recipes, as --set epochs=2; repeatable."
        ),
    ] = None,
    folder: Annotated[Path, typer.Option("--runs", "-o", metavar="DIR", help="Store the runs here.")] = Path(
        "runs/race"
    ),
    result: Annotated[
        Path | None,
        typer.Option(
            callback=ending(".json"),
            help="Record each run in this file when it ends; recorded runs are not computed again.",
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(callback=picture, help="Plot accuracy over training time to this file.")
    ] = None,
    backend: BackendOption = "local",
    workers: WorkersOption = 1,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Train recipes with several seeds each, interleaved, and compare accuracy, time and multiply-accumulates.

    It can be interrupted; the same command resumes it. The machine should be idle otherwise: times are compared.

    Example: cruciform race cifar_fast_cifar10 cifar_fast_lr3_cifar10,epochs=14 --seeds 3 --plot race.png
    """
    from cruciform.api.experiments import race as run_race
    from cruciform.cli.shared.run_progress import make_observer
    from cruciform.training.experiments.race import curves
    from cruciform.training.runtime.processes import Processes

    with interruptible("Resume with the same command"):
        found = run_race(
            recipes,
            seeds=seeds,
            changes=changes or (),
            folder=folder,
            result=result,
            processes=Processes(backend, workers, device),
            observe=make_observer,
        )
    if plot:
        from cruciform.plot.race import draw_race

        draw_race(curves(found.finishes), plot)
    if as_json:
        print_json([finish.to_dict() for finish in found.finishes])
        return
    _print(found)


def _print(result: "RaceResult") -> None:
    from cruciform.training.experiments.race import by_contestant

    rows = []
    groups = by_contestant(result.finishes)
    for name, found in result.summary().items():
        marks = [[finish.seconds_to(mark) for finish in groups[name]] for mark in MARKS]
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
    columns = ("recipe", "MMACs", "parameters", "seeds", "top-1 %", "top-1 % (flip TTA)", "seconds", "images/s")
    print_table("Race", (*columns, *(f"s to {mark:.0%}" for mark in MARKS)), rows)
    console().print("means over seeds ± std; seconds of training, without evaluations")


def _mean(found: "dict[str, float]", what: str) -> str:
    std = found.get(f"{what}_std")  # None for one seed
    return f"{found[what]:.2f}" + ("" if std is None else f" ± {std:.2f}")


def _reached(seconds: "list[float | None]") -> str:
    there = [value for value in seconds if value is not None]
    if not there:
        return "–"
    mean = f"{sum(there) / len(there):,.0f}"
    return mean if len(there) == len(seconds) else f"{mean} ({len(there)} of {len(seconds)})"
