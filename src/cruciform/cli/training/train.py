"""``cruciform train``: train a network by a recipe."""

from dataclasses import asdict
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
            help="A name of 'cruciform recipes', a .toml file, or the directory of a run to resume.",
        ),
    ],
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Override a recipe key, as --set optimizer.lr=0.05; repeatable."
        ),
    ] = None,
    run: Annotated[
        Path | None, typer.Option("--run", "-o", metavar="DIR", help="Directory of the run; default: runs/RECIPE.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume from the last checkpoint, where there is one.")
    ] = False,
    backend: BackendOption = "local",
    workers: WorkersOption = 1,
    min_workers: Annotated[
        int | None, typer.Option(min=1, help="For ray: continue with as few as this while machines are missing.")
    ] = None,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Train a network by a recipe. A run that was killed at any moment is resumed with --resume, bit for bit.

    Relative data paths start from the environment variable CRUCIFORM_DATA.

    Example: cruciform train nin_c3_lr_cifar10 --set epochs=2 --set precision=bf16

    Resume it: cruciform train runs/nin_c3_lr_cifar10 --resume

    Another network, converted: cruciform train modern_cifar10 --set model.name=timm:resnet18 --set model.scheme=lr

    Two processes: cruciform train nin_cifar10 --backend ddp --workers 2

    Exit codes: 0 done; 129, 130 or 143 interrupted, state saved; 3 invalid recipe; 4 invalid data; 5 checkpoint not
    written or read; 6 NaN or Inf; 7 the run can't be started or resumed.
    """
    from cruciform.api.train import train_distributed
    from cruciform.cli.shared.run_progress import make_observer
    from cruciform.store.run_marker import is_run
    from cruciform.training.recipe.cookbook import load_recipe
    from cruciform.training.runtime.processes import Processes

    made = load_recipe(recipe, changes or ())
    directory = run or (Path(recipe) if is_run(Path(recipe)) else RUNS / Path(recipe).stem)
    processes = Processes(backend, workers, device, min_workers)
    again = " ".join(["cruciform train", str(directory), "--resume", *processes_typed(backend, workers)])
    with interruptible(f"Resume with: {again}"):
        status = train_distributed(made, directory, processes=processes, resume=resume, observers=[make_observer()])
    if status is None:  # torchrun started this process, and another one leads
        return
    if as_json:
        print_json(asdict(status))
    else:
        top1 = f", {status.top1:.2%} top-1 accuracy" if status.top1 is not None else ""
        console().print(
            f"done: {plural(status.epochs, 'epoch')}{top1}. Evaluate it with: cruciform evaluate {directory}"
        )
