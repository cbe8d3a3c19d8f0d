"""``cruciform train``: a recipe, run to its end or to the next signal."""

from pathlib import Path
from typing import Annotated

import typer

from cruciform.cli.shared.arguments import BackendOption, DeviceOption, JsonOption, WorkersOption, processes_typed
from cruciform.cli.shared.progress import interruptible
from cruciform.cli.shared.tables import print_json
from cruciform.cli.shared.terminal import console
from cruciform.text.wording import plural

RUNS = Path("runs")


def train(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE",
            help="A name of 'cruciform recipes', a .toml file, or the directory of a run to go on with.",
        ),
    ],
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change the recipe, as --set epochs=2; may be repeated."),
    ] = None,
    run: Annotated[
        Path | None, typer.Option("--run", "-o", metavar="DIR", help="Keep the run here; left out: runs/RECIPE.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the last checkpoint, where there is one.")
    ] = False,
    backend: BackendOption = "local",
    workers: WorkersOption = 1,
    least: Annotated[
        int | None,
        typer.Option("--least-workers", min=1, help="For ray: go on with so few while machines are missing."),
    ] = None,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Train a network from scratch. Kill it at any moment: --resume goes on as if nothing had happened.

    Data is looked for in the folder that the environment variable CRUCIFORM_DATA names.

    Example: cruciform train nin_c3_lr_cifar10 --set epochs=2 --set precision=bf16

    Go on with it: cruciform train runs/nin_c3_lr_cifar10 --resume

    Another network, converted: cruciform train modern_cifar10 --set model.name=timm:resnet18 --set model.scheme=lr

    Two processes: cruciform train nin_cifar10 --backend ddp --workers 2

    Ends with 0 when done, 129, 130 or 143 when interrupted (its state is saved), 3 wrong recipe, 4 wrong data,
    5 checkpoint not written or read, 6 a loss that is not finite, 7 a run that can't be started or gone on with.
    """
    from cruciform.cli.shared.run_progress import make_observer
    from cruciform.training.backends.backend import Job
    from cruciform.training.recipe.cookbook import load_recipe
    from cruciform.training.run.run import Run
    from cruciform.training.start import start

    made = load_recipe(recipe, changes or ())
    given = Run(Path(recipe))
    directory = run or (given.directory if given.exists else RUNS / Path(recipe).stem)
    job = Job(made, Run(directory), resume=resume, workers=workers, least=least, device=device, observe=make_observer)
    again = " ".join(["cruciform train", str(directory), "--resume", *processes_typed(backend, workers)])
    with interruptible(f"Go on with: {again}"):
        speaks = start(job, backend)
    if not speaks:
        return
    status = job.run.status()
    if as_json:
        print_json(status)
    else:
        top1 = f", {status['top1']:.2%} right" if status["top1"] is not None else ""
        console().print(
            f"done: {plural(status['epochs'], 'epoch')}{top1}. Judge it with: cruciform evaluate {directory}"
        )
