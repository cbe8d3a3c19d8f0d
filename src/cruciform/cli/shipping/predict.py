"""``cruciform predict``: what a trained network says to many images."""

from pathlib import Path
from typing import Annotated

import typer

from cruciform.cli.shared.arguments import JsonOption
from cruciform.cli.shared.parsing import ending
from cruciform.cli.shared.progress import progress_bar
from cruciform.cli.shared.tables import print_json
from cruciform.cli.shared.terminal import console
from cruciform.text.wording import plural


def predict(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="An artifact of 'cruciform deploy', a run, or a model directory."),
    ],
    images: Annotated[str, typer.Argument(metavar="IMAGES", help="A folder of images, or a set of shards.")],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", callback=ending(".parquet"), help="The .parquet file to write."),
    ],
    top: Annotated[int, typer.Option(min=1, help="Classes to keep for each image, the best ones.")] = 5,
    batch: Annotated[int, typer.Option(min=1, help="Images that the network sees at a time.")] = 16,
    part: Annotated[int, typer.Option(min=1, help="Images between two points that it can go on from.")] = 1024,
    threads: Annotated[int, typer.Option(min=1, help="Threads of the engine, in each process.")] = 1,
    on_ray: Annotated[bool, typer.Option("--ray", help="On a Ray cluster: RAY_ADDRESS, or this machine.")] = False,
    workers: Annotated[int, typer.Option(min=1, help="Processes, with --ray.")] = 2,
    trust: Annotated[bool, typer.Option("--trust", help="Open artifacts that are code, or as good as code.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write the best classes of every image into a Parquet file: every image once, whatever happens meanwhile.

    Kill it at any moment: the same command goes on. An image that can't be read gets a row that says why.

    Example: cruciform predict onnx shards/val -o predictions.parquet --ray --workers 2

    What it reads is deployed from a run or a model directory: cruciform deploy runs/modern_cifar10 -o onnx

    Ends with 0 where all images could be read, else with 1.
    """
    from cruciform.prediction.request import Request, check_request

    request = Request(model, images, str(output), threads, trust)
    check_request(request)  # before packages are asked for that reading it takes
    from cruciform.prediction.parts import Asking
    from cruciform.prediction.predict_images import run_prediction

    with progress_bar("predicting, parts") as on_progress:
        found = run_prediction(
            request, Asking(top, batch, part), workers=workers if on_ray else None, on_progress=on_progress
        )
    if as_json:
        print_json({"output": str(output), **found._asdict()})
    else:
        unread = f", {found.errors:,} got none: see the column error" if found.errors else ""
        console().print(f"{plural(found.inputs, 'image')} in {output}{unread}")
    if found.errors:
        raise typer.Exit(1)
